"""Plug-ins of MetaSchedule: spaces, moves, checks, cost model, seeds (page 07)."""
