"""Taking messages in: sends of producers, messages sent back by consumers, and replies
to requests.
"""
