package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
)

// sharesAway are this user's shares on other hosts, and those of containers by agents whose directories this user may read.
func sharesAway(agents []listing) ([]relay.Listed, error) {
	var all []relay.Listed
	places := relay.Places()
	for _, l := range agents {
		if place := filepath.Join(l.endpoint.Dir(), relay.PlaceName); !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	for _, place := range places {
		found, err := relay.List(place)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// ofAway is what is selected of the shares on other hosts. The indexes of GPUs are those of this machine.
func (s selection) ofAway(all []relay.Listed) []relay.Listed {
	if s.gpu != "" || s.user != "" && s.user != process.UserName(os.Getuid()) {
		return nil
	}
	return all
}

// printAway writes one row for each GPU of shares on other hosts, and why some have ended.
func printAway(w *strings.Builder, all []relay.Listed, at time.Time, as look) {
	if len(all) == 0 {
		return
	}
	w.WriteString("Shares on other hosts\n")
	shares := columns.Table{Most: columns.MostOfName, Elastic: "COMMAND", Paint: as.paint, Colours: stateColour}
	shares.Row("SHARE", "HOST", "AGE", "GPU", "MODEL", "LIMIT", "CORES", "PIDS", "STATE", "COMMAND")
	for _, r := range all {
		gpus := r.GPUs
		if len(gpus) == 0 {
			gpus = []relay.GPU{{Index: -1}}
		}
		for _, g := range gpus {
			shares.Row(rowAway(r, g, at)...)
		}
	}
	if as.wide {
		shares.Elastic = ""
		shares.Show(w, as.width)
	} else {
		shares.Omit(map[string][]string{"CORES": {"-"}, "MODEL": {"-"}})
		shares.Show(w, as.width, "MODEL", "PIDS", "CORES")
	}
	for _, r := range all {
		switch r.State {
		case relay.StateEnded:
			fmt.Fprintln(w, as.note(fmt.Sprintf("! %s has ended: %s", orDash(r.Name), r.Why)))
		case relay.StateUnknown:
			fmt.Fprintln(w, as.note(fmt.Sprintf("! what is kept of %s cannot be read: %s", r.Name, r.Why)))
		}
	}
}

// hostsAway is where a share is, or where it may be.
func hostsAway(r relay.Listed) string {
	if r.Host != "" {
		return r.Host
	}
	return strings.Join(r.Hosts, ",")
}

// rowAway is a share's row for one of its GPUs, whose index is -1 where it is not known.
func rowAway(r relay.Listed, g relay.GPU, at time.Time) []string {
	index, limit := "-", "-"
	if g.Index >= 0 {
		index = strconv.Itoa(g.Index)
	}
	if r.Memory > 0 {
		limit = size(r.Memory)
	}
	host := hostsAway(r)
	processes := make([]control.Process, len(r.Processes))
	for i, pid := range r.Processes {
		processes[i].PID = pid
	}
	since := "-"
	if !r.Since.IsZero() {
		since = age(at.Sub(r.Since))
	}
	return []string{
		orDash(r.Name), orDash(host), since, index, orDash(strings.TrimPrefix(g.Model, "NVIDIA ")), limit, percent(r.Cores), pids(processes), stateAway(r),
		orDash(strings.Join(r.Command, " ")),
	}
}

// stateAway is what has become of a share on another host.
func stateAway(r relay.Listed) string {
	switch {
	case r.State == relay.StateEnded, r.State == relay.StateUnknown:
		return string(r.State)
	case r.State == relay.StateReady:
		return "until used"
	case len(r.Processes) > 0:
		return "active"
	}
	return "idle"
}
