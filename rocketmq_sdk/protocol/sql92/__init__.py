"""The language of SQL92 subscriptions: texts become trees here; what evaluates them is
the broker's (`broker_embedded.filter`).
"""
