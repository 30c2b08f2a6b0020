package agentconfig

import (
	"net/netip"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Metrics says what is told to Prometheus, and where.
type Metrics struct {
	// Address is where the agent listens, host:port with an empty host for every address; [NoMetrics] for nowhere; empty
	// where the file does not say.
	Address string
	// DCGM has GPUs told of under the names of DCGM's exporter too, where that does not run.
	DCGM bool
}

// NoMetrics is the address of an agent that listens nowhere.
const NoMetrics = "none"

// Metrics is what is told to Prometheus.
func (c *Config) Metrics() Metrics {
	if c == nil {
		return Metrics{}
	}
	return c.metrics
}

// IsMetricsAddress reports whether a text is [NoMetrics], or an address of this machine's with a port, such as
// 127.0.0.1:9410, [::1]:9410 or :9410.
func IsMetricsAddress(text string) bool {
	if text == NoMetrics {
		return true
	}
	if strings.HasPrefix(text, ":") {
		_, err := strconv.ParseUint(text[1:], 10, 16)
		return err == nil
	}
	_, err := netip.ParseAddrPort(text)
	return err == nil
}

func (r *reader) metrics(node *yaml.Node, field string) {
	m := &r.config.metrics
	r.Fields(node, field, known{
		"address": func(n *yaml.Node, f string) {
			if n.Kind != yaml.ScalarNode || !IsMetricsAddress(n.Value) {
				r.Fault(n, f, "%q is not an address and a port, such as 127.0.0.1:9410 or :9410, nor %s", n.Value, NoMetrics)
				return
			}
			m.Address = n.Value
		},
		"dcgm": func(n *yaml.Node, f string) {
			if n.Kind != yaml.ScalarNode || n.Decode(&m.DCGM) != nil {
				r.Fault(n, f, "must be true or false")
			}
		},
	})
}
