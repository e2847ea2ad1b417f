// Package planner decides. It is pure: values in, values out, the same answer for the same question; it knows neither
// network nor database nor Temporal.
package planner
