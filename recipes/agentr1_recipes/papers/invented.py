"""A small corpus made up here, so that the recipe runs anywhere: papers that cite each other, and questions.

For each question there are papers in its own words, which a search finds, and papers in the jargon of their field,
which only references lead to. A survey cites them all; surveys of neighbouring questions cite papers that do not
answer it.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

from agentr1_recipes.papers.corpus import Paper, Question

#: Plain words of a subject, and the jargon of those who work on it.
SUBJECTS = {
    "honey bees": "apis colonies",
    "sea ice": "pack floes",
    "oak forests": "quercus stands",
    "river fish": "salmonid stocks",
    "school children": "pupil cohorts",
    "night workers": "shift crews",
    "old people": "senescent adults",
    "city birds": "synanthropic passerines",
    "rice fields": "paddy plots",
    "hospital nurses": "ward staff",
    "stray dogs": "free-roaming canids",
    "coral reefs": "scleractinian beds",
}
ASPECTS = {
    "sleep": "circadian rest",
    "noise": "acoustic load",
    "heat": "thermal strain",
    "memory": "recall tasks",
    "growth": "biomass gain",
    "stress": "cortisol burden",
    "light": "photic exposure",
    "disease": "pathogen prevalence",
}
_PLAIN = (
    "{aspect} of {subject}: a field study",
    "how {aspect} changes among {subject}",
    "measuring {aspect} in {subject}",
)
_JARGON = (
    "{aspect} across {subject}",
    "a cohort of {subject} under {aspect}",
    "{aspect} indices for {subject}",
    "modelling {aspect} in {subject}",
    "{subject} and {aspect}, ten years on",
)


@dataclass(frozen=True, slots=True)
class Invented:
    """The corpus and its questions, in a random but fixed order."""

    papers: tuple[Paper, ...]
    questions: tuple[Question, ...]


@functools.cache
def invent(seed: int = 0) -> Invented:
    """The corpus: for each subject and aspect one question with nine answers.

    The answers are a survey, three papers in plain words and five in jargon. The survey cites all of them and two that
    do not belong; each plain paper cites two answers and one stranger. Ids are ``p0``, ``p1`` and so on.
    """
    rng = random.Random(f"papers/{seed}")
    pairs = [(subject, aspect) for subject in SUBJECTS for aspect in ASPECTS]
    n_each = 1 + len(_PLAIN) + len(_JARGON)
    numbers = list(range(n_each * len(pairs)))
    rng.shuffle(numbers)
    ids = {pair: [f"p{numbers.pop()}" for _ in range(n_each)] for pair in pairs}
    papers: list[Paper] = []
    questions: list[Question] = []
    for subject, aspect in pairs:
        mine = ids[subject, aspect]
        survey, plain, jargon = mine[0], mine[1 : 1 + len(_PLAIN)], mine[1 + len(_PLAIN) :]
        strangers = [name for pair in pairs if pair != (subject, aspect) for name in ids[pair]]
        cited = [*plain, *jargon, *rng.sample(strangers, 2)]
        rng.shuffle(cited)
        papers.append(_paper(survey, f"{aspect} and {subject}: a survey", cited, rng))
        for name, title in zip(plain, _PLAIN, strict=True):
            cites = [*rng.sample(jargon, 2), *rng.sample(strangers, 1)]
            papers.append(_paper(name, title.format(subject=subject, aspect=aspect), cites, rng))
        for name, title in zip(jargon, _JARGON, strict=True):
            told = title.format(subject=SUBJECTS[subject], aspect=ASPECTS[aspect])
            papers.append(_paper(name, told, rng.sample(jargon, 1), rng))
        questions.append(Question(f"{aspect}/{subject}", f"What is known about {aspect} and {subject}?", tuple(mine)))
    papers.sort(key=lambda paper: int(paper.id[1:]))
    rng.shuffle(questions)
    return Invented(tuple(papers), tuple(questions))


def _paper(name: str, title: str, cites: list[str], rng: random.Random) -> Paper:
    return Paper(name, title, "", rng.randint(1995, 2024), tuple(cites))
