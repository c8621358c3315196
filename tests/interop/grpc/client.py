"""Apache's gRPC client for Python; performs the same commands as GrpcClient.java beside
it, a line of JSON each.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from rocketmq import (  # installed where `support.grpc_clients` says
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

clients: dict[str, Any] = {}
seen: dict[str, list[dict[str, Any]]] = {}
received: list[Message] = []


class Checker(TransactionChecker):
    def __init__(self, asked: list[dict[str, Any]]) -> None:
        self._asked = asked

    def check(self, message: Message) -> TransactionResolution:
        self._asked.append(described(message))
        return TransactionResolution.COMMIT


class Listener(MessageListener):
    def __init__(self, notes: list[dict[str, Any]]) -> None:
        self._notes = notes

    def consume(self, message: Message) -> ConsumeResult:
        entry = described(message)
        self._notes.append(entry)
        fails = entry["body"].startswith("fails once") and entry["attempt"] == 1
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


def described(message: Message) -> dict[str, Any]:
    return {
        "body": message.body.decode(),
        "topic": message.topic,
        "message_id": message.message_id,
        "tag": message.tag,
        "keys": sorted(message.keys),
        "properties": message.properties,
        "message_group": message.message_group,
        "attempt": message.delivery_attempt,
        "corrupted": message.corrupted,
    }


def settings(command: dict[str, Any]) -> ClientConfiguration:
    return ClientConfiguration(command["endpoints"], Credentials("", ""), request_timeout=20)


def subscription(command: dict[str, Any]) -> dict[str, FilterExpression]:
    return {command["topic"]: FilterExpression(command.get("tag") or "*")}


def send(producer: Producer, command: dict[str, Any]) -> dict[str, Any]:
    message = Message()
    message.topic, message.body = command["topic"], command["body"].encode()
    if "tag" in command:
        message.tag = command["tag"]
    if "key" in command:
        message.keys = command["key"]
    for name, value in command.get("properties", {}).items():
        message.add_property(name, value)
    if "message_group" in command:
        message.message_group = command["message_group"]
    if "deliver_at" in command:
        message.delivery_timestamp = command["deliver_at"] // 1000  # it takes seconds
    outcome = command.get("transaction")
    if outcome is None:
        receipt = producer.send(message)
    else:
        transaction = producer.begin_transaction()
        receipt = producer.send(message, transaction)
        if outcome == "commit":
            transaction.commit()
        elif outcome == "rollback":
            transaction.rollback()
    return {"message_id": receipt.message_id, "recall_handle": receipt.recall_handle}


def receive(consumer: SimpleConsumer, command: dict[str, Any]) -> list[dict[str, Any]]:
    answer = []
    for message in consumer.receive(command["count"], command["seconds"]):
        answer.append(described(message) | {"number": len(received)})
        received.append(message)
    return answer


def perform(command: dict[str, Any]) -> Any:
    name = command.get("id", "")
    match command["do"]:
        case "producer":
            asked = seen.setdefault(name, [])
            client = Producer(settings(command), tuple(command["topics"]), checker=Checker(asked))
        case "simple":
            client = SimpleConsumer(
                settings(command), command["group"], subscription(command), command["await"]
            )
        case "push":
            listener = Listener(seen.setdefault(name, []))
            client = PushConsumer(
                settings(command), command["group"], listener, subscription(command)
            )
        case "send":
            return send(clients[name], command)
        case "recall":
            return clients[name].recall_message(command["topic"], command["handle"])
        case "receive":
            return receive(clients[name], command)
        case "ack":
            return clients[name].ack(received[command["number"]])
        case "change":
            message = received[command["number"]]
            return clients[name].change_invisible_duration(message, command["seconds"])
        case "seen":
            return seen[name]
        case "stop":
            return clients.pop(name).shutdown()
        case other:
            raise ValueError(f"unknown command {other}")
    client.startup()
    clients[name] = client
    return None


def main() -> None:
    print('{"ready":true}', flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "exit":
            break
        try:
            answer = {"ok": perform(command)}
        except Exception as error:  # noqa: BLE001 - whatever the client throws is the answer
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)
    for client in clients.values():
        client.shutdown()
    # The client's threads would keep the process.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
