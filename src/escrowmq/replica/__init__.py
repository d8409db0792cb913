"""The journal on a replicated log that exists: who leads, and which frames count.

The log may accept anything from any node. All readers fold it by the same rules, so all of them ignore the frames of a
deposed leader.
"""
