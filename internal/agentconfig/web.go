package agentconfig

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// Web says who may ask for the web page, which is served beside metrics.
type Web struct {
	// Off serves no page.
	Off bool
	// Hosts are names by which browsers and scrapers may ask, in small letters, beside those of the machine for itself.
	Hosts []string
}

// Web is what is said of the web page.
func (c *Config) Web() Web {
	if c == nil {
		return Web{}
	}
	return c.web
}

// longestHost is the most that a name in the domain name system has.
const longestHost = 253

func (r *reader) web(node *yaml.Node, field string) {
	w := &r.config.web
	r.Fields(node, field, known{
		"enabled": func(n *yaml.Node, f string) {
			var on bool
			if n.Kind != yaml.ScalarNode || n.Decode(&on) != nil {
				r.Fault(n, f, "must be true or false")
				return
			}
			w.Off = !on
		},
		"hosts": func(n *yaml.Node, f string) {
			if n.Kind != yaml.SequenceNode {
				r.Fault(n, f, "must be a list of names, such as gpu1.example.org")
				return
			}
			for _, one := range n.Content {
				name := strings.ToLower(one.Value)
				if one.Kind != yaml.ScalarNode || !isHost(name) {
					r.Fault(one, f, "%q is not a name or an address without a port, such as gpu1.example.org", one.Value)
					continue
				}
				w.Hosts = append(w.Hosts, name)
			}
		},
	})
}

// isHost reports whether a text can be a name in the domain name system, or an address.
func isHost(name string) bool {
	return name != "" && len(name) <= longestHost && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-:") == ""
}
