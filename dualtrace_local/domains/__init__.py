"""Domains: what is worth remembering, how it is asked for, and what its traces look like."""
