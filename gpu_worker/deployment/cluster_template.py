"""Template of a cluster, whose guard rails are kept before anything is asked of a provider."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_worker.deployment import templates
from gpu_worker.protocol.errors import OptionError

#: Parameters that ``gpu-worker clusters`` itself gives.
OWN = ("ClusterName", "VisparkId")

_SECTIONS = frozenset(["AWSTemplateFormatVersion", "Conditions", "Description", "Mappings", "Metadata", "Outputs",
                       "Parameters", "Resources", "Rules", "Transform"])


@dataclass(frozen=True)
class ClusterTemplate:
    """CloudFormation template in JSON, of one cluster.

    Attributes
    ----------
    text : str
        As it is sent.
    parameters : dict
        Of each parameter, its name: its type, default and limits.
    """

    text: str
    parameters: dict[str, dict[str, Any]]

    def check(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the values of all parameters but ``ClusterName`` and ``VisparkId``, defaults included.

        Raises
        ------
        OptionError
            If one is unknown, missing, or outside of what the template allows; all problems are named.

        Examples
        --------
        >>> load("").check({"WorkerCounts": "3"})
        Traceback (most recent call last):
            ...
        gpu_worker.protocol.errors.OptionError: WorkerCounts is no parameter of the template; meant WorkerCount?...
        """
        problems = [self._unknown(name) for name in given if name not in self.parameters or name in OWN]
        values = {}
        for name, rules in self.parameters.items():
            value = given.get(name, rules.get("Default"))
            if name in OWN:
                continue
            if value is None:
                wanted = rules.get("ConstraintDescription") or rules.get("Description", "")
                problems.append(f"{name} is missing: {wanted}")
            elif problem := problem_of(name, str(value), rules):
                problems.append(problem)
            values[name] = str(value)
        if problems:
            raise OptionError("; ".join(problems))
        return values

    def _unknown(self, name: str) -> str:
        known = [each for each in self.parameters if each not in OWN]
        near = difflib.get_close_matches(name, known, 1)
        hint = f"meant {near[0]}?" if near else f"there are {', '.join(known)}"
        return f"{name} is {'given by this command' if name in OWN else 'no parameter of the template'}; {hint}"


def load(path: str) -> ClusterTemplate:
    """Return the template in a file, or the package's own where ``path`` is empty.

    Raises
    ------
    OptionError
        If it cannot be read, is no template, has an unknown key, or no parameters for a name and a tag.
    """
    try:
        text = Path(path).read_text(encoding="utf-8") if path else templates.template("emr/cluster.json")
        document = json.loads(text)
    except (OSError, ValueError) as error:
        raise OptionError(f"the template {path} cannot be read as JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("Resources"), dict):
        raise OptionError(f"the template {path} has no Resources; gpu-worker clusters templates emr --out DIR "
                          "writes one")
    if unknown := sorted(document.keys() - _SECTIONS):
        raise OptionError(f"the template {path} has {', '.join(unknown)}; known are {', '.join(sorted(_SECTIONS))}")
    parameters = document.get("Parameters", {})
    if missing := [name for name in OWN if name not in parameters]:
        raise OptionError(f"the template {path} has no parameter {' and none '.join(missing)}, by which the cluster is "
                          "named and found again")
    return ClusterTemplate(text, parameters)


def problem_of(name: str, value: str, rules: Mapping[str, Any]) -> str:
    """Return the problem of a parameter's value, by its limits; empty where there is none."""
    allowed = [str(each) for each in rules.get("AllowedValues", [])]
    if allowed and value not in allowed:
        return f"{name} is one of {', '.join(allowed)}, not {value}"
    if "AllowedPattern" in rules and not re.fullmatch(rules["AllowedPattern"], value):
        form = rules.get("ConstraintDescription") or f"of the form {rules['AllowedPattern']}"
        return f"{name} is {form}, not {value!r}"
    if rules.get("Type") == "Number":
        low, high = rules.get("MinValue", float("-inf")), rules.get("MaxValue", float("inf"))
        if not re.fullmatch(r"-?\d+", value) or not low <= int(value) <= high:
            return f"{name} is a whole number from {low} to {high}, not {value}"
    return ""
