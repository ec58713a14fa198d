"""Template of a cluster, whose guard rails are kept before anything is asked of a provider."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_worker.commands.deployment import templates
from gpu_worker.protocol.errors import OptionError

#: Parameters that commands about clusters give themselves.
OWN = ("ClusterName", "VisparkId")

_SECTIONS = frozenset(["AWSTemplateFormatVersion", "Conditions", "Description", "Mappings", "Metadata", "Outputs",
                       "Parameters", "Resources", "Rules", "Transform"])
_RULES = frozenset(["AllowedPattern", "AllowedValues", "ConstraintDescription", "Default", "Description", "MaxLength",
                    "MaxValue", "MinLength", "MinValue", "NoEcho", "Type"])
#: Keys of a resource; its properties are the provider's own, which refuses those that it does not know.
_RESOURCE = frozenset(["Condition", "CreationPolicy", "DeletionPolicy", "DependsOn", "Metadata", "Properties", "Type",
                       "UpdatePolicy", "UpdateReplacePolicy"])


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
    parameters = document.get("Parameters", {})
    if not isinstance(parameters, dict):
        raise OptionError(f"the template {path} has Parameters that are no object of names, each with its rules")
    if bare := [name for name, rules in parameters.items() if not isinstance(rules, dict)]:
        raise OptionError(f"the template {path} has parameters that are no objects: {', '.join(bare)}; one is "
                          '{"Type": "String"}')
    resources = document["Resources"]
    if bare := [name for name, each in resources.items() if not isinstance(each, dict) or "Type" not in each]:
        raise OptionError(f"the template {path} has resources without a Type: {', '.join(bare)}")
    # A limit whose name is misspelt would be none.
    for place, part, names in [
            ("", document, _SECTIONS),
            *((f" in the parameter {name}", rules, _RULES) for name, rules in parameters.items()),
            *((f" in the resource {name}", each, _RESOURCE) for name, each in resources.items())]:
        if unknown := sorted(part.keys() - names):
            raise OptionError(f"the template {path} has {', '.join(unknown)}{place}; known are "
                              f"{', '.join(sorted(names))}")
    if missing := [name for name in OWN if name not in parameters]:
        raise OptionError(f"the template {path} has no parameter {' and none '.join(missing)}, by which the cluster is "
                          "named and found again")
    return ClusterTemplate(text, parameters)


def problem_of(value: str, rules: Mapping[str, Any]) -> str:
    """Return the form that a parameter's value lacks, by its limits; empty where it has it."""
    allowed = [str(each) for each in rules.get("AllowedValues", [])]
    if allowed and value not in allowed:
        return f"one of {', '.join(allowed)}"
    if "AllowedPattern" in rules and not re.fullmatch(rules["AllowedPattern"], value):
        return str(rules.get("ConstraintDescription") or f"of the form {rules['AllowedPattern']}")
    if rules.get("Type") == "Number":
        low, high = rules.get("MinValue", float("-inf")), rules.get("MaxValue", float("inf"))
        if not re.fullmatch(r"-?\d+", value) or not low <= int(value) <= high:
            return f"a whole number from {low} to {high}"
    return ""
