"""The configuration: its settings, their defaults and limits, and how they are read.

Each module has the tables of one subject, and `config` puts them together. The fields' descriptions are the
documentation: docs/configuration.md is generated from them.
"""
