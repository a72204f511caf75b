"""The conformance kit: checks that every engine, environment, tool and backend must pass.

Subclass a kit in your tests and say how to make the thing; the checks come with it. ``ScriptedEngine`` plays given
answers, so that an environment can be tested without a model.
"""
