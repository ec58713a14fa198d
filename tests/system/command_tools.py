"""Commands of ``vispark`` that a test runs in its own process."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from click.testing import CliRunner, Result

from vispark.migrate.cli import main


def here(environment: Mapping[str, str], *words: str) -> Result:
    """Run a command that starts nothing in this process, which need not begin for it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return CliRunner().invoke(main, list(words))
