"""See the package."""

import uuid


def random_uuid():
    return uuid.uuid4().hex
