"""fio's JSON (``json`` and ``json+``) as typed records. Pure: text in, records out.

fio prints warnings before its JSON, prints one document a report interval, and goes on after a
job failed; all of that is read here. Its unit of latency is the nanosecond, ours the second. A bin
of json+ is named by its middle, as fio's percentiles are; no bin is wider than 1.6 % (fio's
``FIO_IO_U_PLAT_BITS`` of 6).
"""

from diskproof.fio_output.job_metrics import combine_clones, job_histograms, job_metrics
from diskproof.fio_output.parse import (
    Direction,
    FioJob,
    FioResult,
    Latency,
    parse_fio_documents,
    parse_fio_output,
)

__all__ = [
    "FioJob",
    "FioResult",
    "Latency",
    "Direction",
    "combine_clones",
    "job_histograms",
    "job_metrics",
    "parse_fio_documents",
    "parse_fio_output",
]
