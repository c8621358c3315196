"""`rocketmq store verify|dump|repair DIR`.

Exit codes: 0 nothing is wrong (any more), 1 there are findings, 2 the directory cannot
be read, or is open where it must not be.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import trio

from rocketmq_sdk.broker_embedded.store_tool.repair import RepairJob, repair_directory
from rocketmq_sdk.broker_embedded.store_tool.verify import verify_directory
from rocketmq_sdk.cli.progress import StageProgress
from rocketmq_sdk.errors import StoreError
from rocketmq_sdk.model.properties import decode_properties

if TYPE_CHECKING:
    import argparse

    from rocketmq_sdk.broker_embedded.store_tool.log import LogRecord
    from rocketmq_sdk.broker_embedded.store_tool.report import StoreReport


def run_store(options: argparse.Namespace) -> int:
    """Run one action and return its exit code."""
    try:
        if options.action == "verify":
            return _verify(options)
        if options.action == "dump":
            return _dump(options)
        return _repair(options)
    except StoreError as error:
        print(f"rocketmq: {error}", file=sys.stderr)
        return 2


def _look(options: argparse.Namespace) -> StoreReport:
    directory, commit_log = options.directory, options.commit_log
    with StageProgress() as advance:
        return verify_directory(directory, advance, commit_log=commit_log)


def _verify(options: argparse.Namespace) -> int:
    report = _look(options)
    if options.json:
        print(json.dumps({"directory": options.directory, **report.as_json()}, indent=2))
    else:
        _print(report)
    return _exit_code(report)


def _exit_code(report: StoreReport) -> int:
    """What an unclean stop leaves for the next start is told, and is nothing wrong."""
    return 1 if report.wrong else 0


def _print(report: StoreReport) -> None:
    for finding in report.findings:
        print(finding)
    wrong = report.wrong
    found = f"{wrong} finding{'' if wrong == 1 else 's'}" if wrong else "nothing wrong"
    running = "; a broker has the directory open" if report.running else ""
    print(
        f"{found}: {report.records:,} records in [{report.log_start}, {report.log_end}), "
        f"{report.units:,} units in {report.queues:,} queues, "
        f"{report.bytes:,} bytes read{running}"
    )


def _dump(options: argparse.Namespace) -> int:
    topic, as_json = options.topic, options.json

    def show(record: LogRecord) -> None:
        if topic is not None and record.topic != topic:
            return
        properties = decode_properties(record.properties)
        if as_json:
            fields = (
                "position",
                "size",
                "topic",
                "queue_id",
                "queue_offset",
                "sys_flag",
                "flag",
                "born_timestamp",
                "store_timestamp",
                "body_length",
            )
            print(
                json.dumps(
                    {
                        **{name: getattr(record, name) for name in fields},
                        "properties": dict(properties),
                    }
                )
            )
            return
        stored = datetime.fromtimestamp(record.store_timestamp / 1000, UTC).isoformat(
            timespec="milliseconds"
        )
        shown = " ".join(f"{name}={value}" for name, value in properties.items())
        print(
            f"{record.position} {record.size} {stored} {record.topic} {record.queue_id} "
            f"{record.queue_offset} body={record.body_length} {shown}"
        )

    report = verify_directory(options.directory, on_record=show, commit_log=options.commit_log)
    for finding in report.findings:
        print(finding, file=sys.stderr)
    return _exit_code(report)


def _repair(options: argparse.Namespace) -> int:
    def tell(text: str) -> None:
        print(text, file=sys.stderr if options.json else sys.stdout)

    with StageProgress() as advance:
        job = repair_directory(
            options.directory,
            tell,
            commit_log=options.commit_log,
            queue_file_size=options.queue_file_size,
            advance=advance,
        )
    for finding in job.report.findings:
        tell(str(finding))
    if job.plan.refusals:
        for finding in job.plan.refusals:
            tell(f"cannot be repaired: {finding}")
        tell("nothing was changed")
    elif options.dry_run:
        for step in job.plan.steps:
            tell(f"would {step}")
    elif job.plan.steps:
        trio.run(job.run)
    return _after_repair(options, job)


def _after_repair(options: argparse.Namespace, job: RepairJob) -> int:
    done = not job.plan.refusals and not options.dry_run
    report = _look(options) if done and job.plan.steps else job.report
    if options.json:
        steps = job.plan.steps
        print(
            json.dumps(
                {
                    "directory": options.directory,
                    "steps": steps,
                    "repaired": done and bool(steps),
                    **report.as_json(),
                },
                indent=2,
            )
        )
    else:
        _print(report)
    return _exit_code(report)
