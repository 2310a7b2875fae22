// Package monitoring tests the Grafana dashboard and the Prometheus alert rules in docs/dashboards: the dashboard
// against Grafana's schema, and all queries in Prometheus' query engine, on samples of programs that run in virtual
// time. Its tests also write the picture of the dashboard. It is a module of its own, because
// Prometheus has many dependencies.
package monitoring
