"""Studies: many runs of one base, and what they answer.

A study file (:mod:`fedsim.studies.study_file`) becomes a list of runs (:mod:`fedsim.studies.plan`), which
worker processes do (:mod:`fedsim.studies.perform`). What they answer (:mod:`fedsim.studies.study_answers`)
is read from their folders alone.
"""
