// Package monitoring holds the alerts and dashboards that the chart ships against Prometheus' own programs, and against a
// Prometheus that scrapes an agent of a simulated machine.
package monitoring
