"""The reward of a purchase: its laws, and worked examples."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr1_recipes.webshop.goal import NO_LIMIT, Goal, split_goals, synthetic_goals
from agentr1_recipes.webshop.product import Product, read_product
from agentr1_recipes.webshop.reward import (
    count_options,
    has_attribute,
    plain_colour,
    score_purchase,
    title_nouns,
    title_score,
    type_reward,
)

WORDS = st.sampled_from(
    ("oak", "tea", "lamp", "mug", "red", "blue", "small", "soft", "steel", "box", "desk", "hat", "cup")
)
TEXTS = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
PRODUCTS = st.builds(
    Product,
    asin=st.just("A1"),
    title=TEXTS,
    query=WORDS,
    product_category=st.lists(WORDS, min_size=1, max_size=3).map(" › ".join),
    description=TEXTS,
    bullets=st.lists(TEXTS, max_size=2).map(tuple),
    attributes=st.lists(TEXTS, min_size=1, max_size=3, unique=True).map(tuple),
    options=st.dictionaries(
        st.sampled_from(["color", "size", "style"]), st.lists(TEXTS, min_size=1, max_size=3).map(tuple)
    ),
    price=st.floats(0, 500),
)


@st.composite
def goals(draw, product=None):
    made = product or draw(PRODUCTS)
    return Goal(
        instruction="buy it",
        asin=made.asin,
        title=made.title,
        query=made.query,
        product_category=made.product_category,
        attributes=draw(st.lists(TEXTS, min_size=1, max_size=3).map(tuple)),
        options=draw(st.lists(TEXTS, max_size=3).map(tuple)),
        price_upper=draw(st.sampled_from([10.0, 50.0, NO_LIMIT])),
    )


CHOICES = st.dictionaries(st.sampled_from(["color", "size", "style"]), TEXTS)


@settings(deadline=None, max_examples=40)
@given(PRODUCTS, goals(), CHOICES)
def test_the_reward_is_the_formula_of_its_parts(product, goal, chosen):
    score = score_purchase(product, chosen, goal)
    asked = len(goal.attributes) + len(goal.options) + 1
    assert score.reward == score.r_type * ((score.n_attributes + score.n_options + score.price_ok) / asked)
    assert 0 <= score.reward <= 1
    assert score.r_type in (0.0, 0.1, 0.5, 1.0)
    assert 0 <= score.n_attributes <= len(goal.attributes)
    assert 0 <= score.n_options <= len(goal.options)


@settings(deadline=None, max_examples=40)
@given(PRODUCTS, st.data())
def test_the_product_that_a_goal_was_made_from_gets_the_full_reward(product, data):
    wanted = data.draw(st.lists(st.sampled_from(product.attributes), min_size=1, unique=True))
    for goal in synthetic_goals(product, "Find me one", wanted):
        chosen = dict(zip(sorted(product.options), goal.options, strict=True))
        assert score_purchase(product, chosen, goal).reward == 1.0


@settings(deadline=None, max_examples=40)
@given(PRODUCTS, goals(), CHOICES, st.sampled_from(["color", "size", "style"]), TEXTS)
def test_one_more_option_never_costs(product, goal, chosen, name, value):
    before = score_purchase(product, {key: given for key, given in chosen.items() if key != name}, goal)
    after = score_purchase(product, {**chosen, name: value}, goal)
    assert after.reward >= before.reward


@settings(deadline=None, max_examples=40)
@given(PRODUCTS, goals(), CHOICES, st.randoms())
def test_the_order_of_what_was_asked_for_does_not_matter(product, goal, chosen, rng):
    mixed = replace(
        goal,
        attributes=tuple(rng.sample(goal.attributes, len(goal.attributes))),
        options=tuple(rng.sample(goal.options, len(goal.options))),
    )
    assert score_purchase(product, chosen, mixed) == score_purchase(product, chosen, goal)


@settings(deadline=None, max_examples=40)
@given(PRODUCTS, goals(), CHOICES)
def test_a_lower_price_never_costs(product, goal, chosen):
    cheap, dear = replace(product, price=0.0), replace(product, price=goal.price_upper + 1)
    assert score_purchase(cheap, chosen, goal).reward >= score_purchase(dear, chosen, goal).reward


GOAL = Goal("a red oak lamp", "A1", "Oak Lamp", "lamps", "Home › Light", ("hand made",), ("red",), 20.0)
LAMP = Product("A2", "Oak Lamp with a Shade", "lamps", "Home › Light", bullets=("It is Hand Made.",), price=25.0)


def test_a_worked_example():
    # The same kind (both nouns), the attribute in a bullet, the option as another red, and too dear: 2 of 3.
    score = score_purchase(LAMP, {"color": "dark red"}, GOAL)
    assert (score.r_type, score.n_attributes, score.n_options, score.price_ok) == (1.0, 1, 0, False)
    score = score_purchase(LAMP, {"color": "wine red"}, GOAL)
    assert score.reward == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("title", "query", "categories", "expected"),
    [
        ("Steel Table", "tables", "Home › Light", 0.0),  # no noun in common, whatever else is
        ("Oak Table", "lamps", "Office", 1.0),
        ("Oak Table", "tables", "Office", 1.0),  # half of the nouns
    ],
)
def test_the_kind_of_product(title, query, categories, expected):
    product = Product("A3", title, query, categories)
    assert type_reward(product, GOAL) == expected


def test_few_common_nouns_lower_the_reward_step_by_step():
    long = replace(
        GOAL, title="oak lamp shade base cord plug bulb stand foot rim edge", query="x", product_category="y"
    )
    twice = replace(long, title=long.title + " " + " ".join("abcdefghij"[i] * 2 for i in range(10)))
    assert title_score("oak", long.title) == pytest.approx(1 / 11)
    assert type_reward(Product("A", "oak"), long) == 0.1
    assert type_reward(Product("A", "oak lamp"), long) == 0.5  # 2 of 11
    assert type_reward(Product("A", "oak lamp shade"), long) == 1.0  # 3 of 11
    assert type_reward(Product("A", "oak lamp", query="x"), long) == 1.0
    assert type_reward(Product("A", "oak", query="x"), twice) == 0.1


def test_a_title_without_nouns_scores_a_fifth():
    assert title_score("Oak Lamp", "2 x 4 for the") == 0.2
    assert title_nouns("The 2-Pack of Men's T-Shirts (XL)") == ["pack", "men", "shirts", "xl"]


@pytest.mark.parametrize(
    ("attribute", "wanted", "expected"),
    [
        ("hand made", "hand made", True),
        ("Hand-Made", "hand made", True),
        ("made by hand", "hand made", True),  # the words, in whichever order
        ("machine made", "hand made", False),
    ],
)
def test_attributes_match_by_their_words(attribute, wanted, expected):
    assert has_attribute(Product("A", "Lamp", attributes=(attribute,)), wanted) is expected


def test_options_match_by_colour():
    assert plain_colour("a | midnight blue") == "blue"
    assert count_options(["navy blue"], ["sky blue"]) == 1
    assert count_options(["large"], ["small"]) == 0
    assert count_options(["10 inch"], ["10 Inch"]) == 1
    assert count_options([], ["red"]) == 0


@pytest.mark.parametrize(
    ("pricing", "tag", "low", "high"),
    [
        ("$9.99", "$9.99", 9.99, 9.99),
        (None, "$100.0", 100, 100),
        ("$1,005.00$1,010.00", "$1005.0 to $1010.0", 1005, 1010),
    ],
)
def test_prices(pricing, tag, low, high):
    row = {"asin": "A1", "name": "n", "query": " Q ", "category": "c", "product_category": "p", "pricing": pricing}
    product = read_product(row, (), "here")
    assert product == read_product(row, (), "here")
    assert (product.price_tag, product.query) == (tag, "q")
    assert low <= product.price <= high


def test_the_limit_is_one_of_the_next_four_tens_but_the_first():
    product = Product("A1", "Lamp", price=12.0, options={"size": ("s", "m")})
    found = list(synthetic_goals(product, "Find me lamps", ["x"]))
    assert {goal.price_upper for goal in found} <= {30.0, 40.0, 50.0}
    assert (
        found[0].instruction == f"Find me lamps with size: s, and price lower than {found[0].price_upper:.2f} dollars"
    )
    (dear,) = synthetic_goals(Product("A2", "Lamp", price=985.0), "Find me lamps", ["x"])
    assert (dear.price_upper, dear.instruction) == (NO_LIMIT, "Find me lamps")


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 60))
def test_splits_do_not_overlap_and_leave_nothing_out(n):
    given_goals = [replace(GOAL, asin=str(number)) for number in range(n)]
    splits = split_goals(given_goals, 6, 9)
    assert sorted(goal.asin for split in splits.values() for goal in split) == sorted(
        str(number) for number in range(n)
    )
    sizes = (6, 9) if n >= 30 else (n // 6, n // 3)
    assert (len(splits["test"]), len(splits["eval"])) == sizes
