"""The language of SQL92 subscriptions: from text to tree.

Evaluation is the broker's (`broker_embedded.filter`).
"""
