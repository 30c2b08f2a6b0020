package model

import "fmt"

func (m *Model) Debug() string {
	s := ""
	for _, x := range m.tenants {
		s += fmt.Sprintln(x.Key, float64(x.own)/1e6, "charged", float64(x.bucket.charged)/1e6, "corr", float64(x.budget.correction)/1e6, "bal", float64(x.bucket.balance)/1e6, x.budget.stretch, x.processes[0].cost, x.processes[0].count)
	}
	return s
}
