package agentconfig

import "go.yaml.in/yaml/v3"

// Workers are the users as whom the workers of backend remote run: one each, of so many from the first on.
type Workers struct{ FirstUID, Count int }

// The users of workers where the file does not say. They stand in the table of https://systemd.io/UIDS-GIDS as unused, between
// those that systemd gives to greeters and to services, and are below 65536: a container or virtual machine has them too.
const (
	defaultFirstWorker = 60706
	defaultWorkers     = 478
)

// The bounds. Users below the first one are the system's and people's on many machines, and Linux has none from the last on.
const (
	leastWorker = 1000
	mostUsers   = 1<<31 - 1
	mostWorkers = 65536
)

// Workers are the users of workers.
func (c *Config) Workers() Workers {
	if c == nil || c.workers == (Workers{}) {
		return Workers{defaultFirstWorker, defaultWorkers}
	}
	return c.workers
}

func (r *reader) workers(node *yaml.Node, field string) {
	w := Workers{}
	before := len(r.Faults)
	r.Fields(node, field, known{
		"firstUID": func(n *yaml.Node, f string) {
			if w.FirstUID = r.number(n, f, mostUsers-1); w.FirstUID > 0 && w.FirstUID < leastWorker {
				r.Fault(n, f, "users below %d are the system's: give a range that is nobody's", leastWorker)
			}
		},
		"count": func(n *yaml.Node, f string) { w.Count = r.number(n, f, mostWorkers) },
	})
	switch {
	case len(r.Faults) > before:
	case w.FirstUID == 0:
		r.Fault(node, field+".firstUID", "missing: give the first user of a range that is nobody's, such as %d", defaultFirstWorker)
	case w.Count == 0:
		r.Fault(node, field+".count", "missing: say how many users from firstUID on are nobody's")
	case w.FirstUID+w.Count > mostUsers:
		r.Fault(node, field, "users %d to %d: the last one can be %d", w.FirstUID, w.FirstUID+w.Count-1, mostUsers-1)
	case w.FirstUID <= nobody && nobody < w.FirstUID+w.Count:
		r.Fault(node, field, "users %d to %d: user %d is the one who stands for nobody", w.FirstUID, w.FirstUID+w.Count-1, nobody)
	}
	r.config.workers = w
}

// nobody is the user that Linux shows for whom it cannot name.
const nobody = 65534
