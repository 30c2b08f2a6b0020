package cli

import (
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/process"
)

// troubleChecks tell what an agent says that it cannot do beside serving shares.
func troubleChecks(l *control.Listing) (checks []doctor.Check) {
	if l.History != "" {
		checks = append(checks, doctor.Check{
			ID: "agent.history", Name: "history", Status: doctor.Warn, Found: l.History,
			Next: byRoot("see to the folder that it names, mostly by making room there: the agent tries again by itself"),
		})
	}
	if l.MetricsTaken != "" {
		checks = append(checks, doctor.Check{
			ID: "agent.metrics", Name: "metrics and web page", Status: doctor.Warn,
			Found: fmt.Sprintf("the agent serves neither: %s has %s", holderOf(l.MetricsTaken), l.MetricsTaken),
			Next:  byRoot("end that program, or give the agent another address (`metrics: {address: …}` in agent.yaml): it tries again by itself"),
		})
	}
	return checks
}

// byRoot is what root can do, or have done for who reads it.
func byRoot(what string) string {
	if os.Getuid() == 0 {
		return what
	}
	return "ask an administrator to " + what
}

// holderOf names who listens at an address, as far as the reader may know.
func holderOf(address string) string {
	const unknown = "another program"
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return unknown
	}
	if host == "" {
		host = netip.IPv6Unspecified().String()
	}
	at, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return unknown // the agent's configuration may name a host
	}
	who, ok := process.ListenerAt(at)
	switch {
	case !ok:
		return unknown
	case who.PID == 0:
		return "a program of " + process.UserName(who.UID)
	}
	return fmt.Sprintf("process %d (%s) of %s", who.PID, process.Command(who.PID), process.UserName(who.UID))
}
