"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One deviation: where it was seen, what was seen, and what it looks like."""

    case: str
    what: str
    observed: str
    expected: str
    diagnosis: str = ""

    def __str__(self) -> str:
        """One line."""
        text = f"{self.case}: {self.what}: observed {self.observed}, expected {self.expected}"
        return text + (f" -- {self.diagnosis}" if self.diagnosis else "")


@dataclass(frozen=True)
class Report:
    """The result of a check: its findings, how many comparisons it made, and what it can see."""

    findings: tuple[Finding, ...]
    num_checks: int
    method: str

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def diagnoses(self) -> list[str]:
        """The distinct diagnoses, in order."""
        return list(dict.fromkeys(f.diagnosis for f in self.findings if f.diagnosis))

    def __str__(self) -> str:
        """A summary, then the findings."""
        verdict = "passed" if self.ok else f"{len(self.findings)} findings"
        lines = [f"{verdict} in {self.num_checks} checks ({self.method})"]
        lines += [f"likely: {text}" for text in self.diagnoses]
        return "\n".join(lines + [f"  {finding}" for finding in self.findings[:20]])
