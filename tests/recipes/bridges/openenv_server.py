"""A small OpenEnv server: say a number until it is the secret one. Argument: port."""

import sys

SECRET = 4


def app():
    from openenv.core import Action, Environment, Observation, State, create_fastapi_app

    class Guess(Action):
        number: str

    class Hint(Observation):
        text: str

    class Guessing(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def reset(self, seed=None, episode_id=None, **kwargs):
            self.guesses = 0
            return Hint(text=f"Guess. Seed {seed}.", reward=None, done=False)

        def step(self, action, timeout_s=None, **kwargs):
            self.guesses += 1
            right = action.number == str(SECRET)
            return Hint(text="Right." if right else f"Wrong, guess {self.guesses}.", reward=float(right), done=right)

        @property
        def state(self):
            return State(step_count=self.guesses)

    return create_fastapi_app(Guessing, Guess, Hint, max_concurrent_envs=8)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app(), host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
