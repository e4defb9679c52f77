"""What diskproof consists of, as a CycloneDX document: the Python packages that it needs, and what
its native programs are linked with."""

import re
import tomllib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import Distribution, distribution

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, License
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from natives import ROOT
from third_parties import Part

LOCK = ROOT / "requirements-dev.lock"
"""All that requirements.lock has, and what the extra `fleet` needs."""
UNKNOWN = DisjunctiveLicense(name="NOASSERTION")
"""Of diskproof itself: nobody has chosen a licence."""
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:diskproof")


@dataclass
class Package:
    """A Python package as it is installed here, in the version of the lock; ``extras`` are those of
    ours that ask for it, and none where the plain installation does."""

    found: Distribution
    extras: set[str] = field(default_factory=set)
    needs: set[str] = field(default_factory=set)


def render_sbom(version: str, commit: str, seconds: int, parts: Iterable[Part]) -> str:
    """The document; ``seconds`` (Unix time) are of the commit. Equal input gives equal bytes."""
    ours = Component(
        name="diskproof",
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref="diskproof",
        licenses=[UNKNOWN],
        purl=PackageURL("pypi", None, "diskproof", version),
    )
    packages = find_packages()
    python = {name: _python_component(each) for name, each in packages.items()}
    native = {f"{part.name}@{part.version}": _native_component(part) for part in parts}
    bom = Bom(
        components=[*python.values(), *native.values()],
        metadata=BomMetaData(component=ours, timestamp=datetime.fromtimestamp(seconds, UTC)),
        serial_number=uuid.uuid5(NAMESPACE, f"{version} {commit}"),
    )
    for name, package in packages.items():
        bom.register_dependency(python[name], [python[each] for each in sorted(package.needs)])
    for part in parts:
        key = f"{part.name}@{part.version}"
        bom.register_dependency(native[key], [native[each] for each in part.needs])
    asked = {canonicalize_name(each.name) for _, each in _asked()}
    direct = [component for name, component in python.items() if name in asked]
    bom.register_dependency(ours, [*direct, *native.values()])
    text: str = JsonV1Dot6(bom).output_as_string(indent=1)
    return text + "\n"


def check_sbom(text: str) -> str:
    """The document itself; SystemExit where it does not fit the published schema of CycloneDX."""
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"this is no CycloneDX: {wrong}")
    return text


def _asked() -> Iterator[tuple[str, Requirement]]:
    """What pyproject.toml asks for, each with the extra that it is of (empty: none)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return ((extra, Requirement(each)) for extra, group in groups.items() for each in group)


def find_packages() -> dict[str, Package]:
    """The packages that an installation here has, by name, those of all extras included."""
    pinned = read_lock()
    packages: dict[str, Package] = {}
    for extra, asked in _asked():
        _follow(asked, extra, packages, pinned)
    return dict(sorted(packages.items()))


def _follow(
    asked: Requirement, extra: str, packages: dict[str, Package], pinned: dict[str, list[str]]
) -> None:
    name = canonicalize_name(asked.name)
    found = packages.setdefault(name, Package(distribution(name)))
    if f"{name}=={found.found.version}" not in pinned:
        raise SystemExit(f"{name} {found.found.version} is here, and not in {LOCK.name}")
    if extra in found.extras and not asked.extras:
        return
    found.extras.add(extra)
    for line in found.found.requires or ():
        needed = Requirement(line)
        wanted = [{"extra": each} for each in ("", *asked.extras)]
        if needed.marker is None or any(map(needed.marker.evaluate, wanted)):
            found.needs.add(canonicalize_name(needed.name))
            _follow(needed, extra, packages, pinned)


@cache
def read_lock() -> dict[str, list[str]]:
    """The sha256 digests of the files that pip may take, by ``NAME==VERSION``."""
    entries = LOCK.read_text().replace("\\\n", " ").splitlines()
    rows = (line for line in entries if line and not line.lstrip().startswith("#"))
    return {
        re.split(r"[ ;]", row, maxsplit=1)[0]: re.findall("--hash=sha256:([0-9a-f]{64})", row)
        for row in rows
    }


def _python_component(package: Package) -> Component:
    name = canonicalize_name(package.found.name)
    version = package.found.version
    purl = PackageURL("pypi", None, name, version)
    # One digest for each file that there is of it: which of them is taken, the platform decides.
    files = [
        HashType(alg=HashAlgorithm.SHA_256, content=each)
        for each in read_lock()[f"{name}=={version}"]
    ]
    return Component(
        name=name,
        version=version,
        bom_ref=str(purl),
        purl=purl,
        scope=ComponentScope.REQUIRED if "" in package.extras else ComponentScope.OPTIONAL,
        licenses=[_licence(find_licence(package.found))],
        external_references=[
            ExternalReference(
                type=ExternalReferenceType.DISTRIBUTION,
                url=XsUri(str(purl)),
                hashes=files,
                comment="one of these files, by the platform",
            )
        ],
    )


def find_licence(found: Distribution) -> str:
    """What its metadata says, an SPDX expression where it is a newer one."""
    told = found.metadata
    classifiers = (
        each for each in told.get_all("Classifier") or () if each.startswith("License ::")
    )
    words = [
        each.rpartition(" :: ")[2] for each in classifiers if not each.endswith("OSI Approved")
    ]
    short = told.get("License") or ""
    named = short if "\n" not in short.strip() else ""
    return told.get("License-Expression") or " AND ".join(words) or named or "NOASSERTION"


def _licence(text: str) -> License:
    return UNKNOWN if text == "NOASSERTION" else LicenseFactory().make_from_string(text)


def _native_component(part: Part) -> Component:
    namespace = "debian" if part.kind == "deb" else None
    purl = PackageURL(part.kind, namespace, part.name, part.version)
    return Component(
        name=part.name,
        version=part.version,
        bom_ref=str(purl),
        purl=purl,
        scope=ComponentScope.REQUIRED,
        licenses=[_licence(part.licence)],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else [],
    )
