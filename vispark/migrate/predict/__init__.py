"""Prediction of passes and programs: devices by data sheets, calibrations and probes; clusters and prices.

Place 4 of 13 in ``vispark.migrate``; run by: driver, command.
"""
