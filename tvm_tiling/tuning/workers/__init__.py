"""Measuring on other machines, behind TVM's tracker."""
