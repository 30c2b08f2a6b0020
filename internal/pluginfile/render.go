package pluginfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Agent renders the configuration of an agent, agent.yaml, with what became of each key as comments; name is the file's.
func (c *Config) Agent(name string) string {
	var b strings.Builder
	c.comment(&b, name)
	fmt.Fprintf(&b, "apiVersion: %s\nkind: AgentConfig\n", v1alpha1.APIVersion)
	if c.Strategy != StrategyNone {
		b.WriteString("# GPUs in MIG mode have form mig: name them as backends.mig, because the file does not say which they are.\n")
	}
	whole := c.ofGPUs()
	if len(whole) == 0 {
		b.WriteString("# No GPU has replicas: each is given out whole, or in shares of any size.\n")
		return b.String()
	}
	b.WriteString("backends:\n")
	for _, backend := range []v1alpha1.Backend{v1alpha1.BackendTimeslice, v1alpha1.BackendMPS} {
		var entries []string
		for _, e := range whole {
			if e.Backend == backend {
				entries = append(entries, fmt.Sprintf("    - {gpus: %s, replicas: %d} # %s", e.Devices.list(), e.Replicas, e.Field))
			}
		}
		if len(entries) > 0 {
			fmt.Fprintf(&b, "  %s:\n%s\n", backend, strings.Join(entries, "\n"))
		}
	}
	return b.String()
}

// ofGPUs are the entries for whole GPUs. Those for MIG devices have no place in agent.yaml: a share names its profile.
func (c *Config) ofGPUs() []Replicated {
	var all []Replicated
	for _, e := range c.Replicated {
		if e.Resource == GPUResource && !slices.ContainsFunc(e.Devices.List, ofMIG) {
			all = append(all, e)
		}
	}
	return all
}

// list writes the devices as agent.yaml does.
func (d Devices) list() string {
	names := d.List
	for i := range d.Count {
		names = append(names, fmt.Sprint(i))
	}
	if d.All() {
		return "all"
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// Values renders values of the chart, with what became of each key as comments. Text is the file, which the chart takes
// as it is, unless a key of it is refused.
func (c *Config) Values(name string, text []byte) string {
	var b strings.Builder
	c.comment(&b, name)
	b.WriteString("agent:\n")
	if c.DriverRoot != "" {
		fmt.Fprintf(&b, "  driverRoot: %s\n", quoted(c.DriverRoot))
	}
	fmt.Fprintf(&b, "  nvidiaLabels: %t\n", c.Labels)
	if len(c.RefusedNotes()) > 0 {
		b.WriteString("  # devicePlugin takes the file once the refused keys are out of it.\n")
	} else {
		b.WriteString("  devicePlugin:\n    configs:\n      default: |2\n")
		for line := range strings.Lines(strings.TrimRight(string(text), "\n") + "\n") {
			b.WriteString("        " + line)
		}
	}
	b.WriteString(c.dialect())
	return b.String()
}

// dialect renders, as a comment, the webhook's dialect nvidia for clusters whose pods get claims.
func (c *Config) dialect() string {
	const title = "# For mode claims (Kubernetes 1.36 and newer), beside devicePlugin, which mode slots takes alone:\n"
	whole := c.ofGPUs()
	if len(whole) == 0 {
		return title + "# dialects: {nvidia: {}}\n"
	}
	first := whole[0]
	for _, e := range whole[1:] {
		if e.Replicas != first.Replicas || e.Renamed != first.Renamed {
			return title + "# dialects: {nvidia: {}}, with replicas: one number of them holds for the whole cluster, and the file has several.\n"
		}
	}
	return fmt.Sprintf(title+"# dialects: {nvidia: {replicas: %d, renamed: %t}}\n", first.Replicas, first.Renamed)
}

// quoted writes a text that YAML could read as something else in quotes.
func quoted(text string) string {
	for _, r := range text {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/-_.", r) {
			return fmt.Sprintf("%q", text)
		}
	}
	return text
}

// comment writes what became of each key, those that are refused first.
func (c *Config) comment(b *strings.Builder, name string) {
	fmt.Fprintf(b, "# What became of %q, a configuration of NVIDIA's device plugin.\n", name)
	for _, part := range []struct {
		outcome Outcome
		title   string
	}{{Refused, "Refused"}, {NoEffect, "Without effect"}, {Works, "Works"}} {
		said := false
		for _, n := range c.Notes {
			if n.Outcome != part.outcome {
				continue
			}
			if !said {
				fmt.Fprintf(b, "#\n# %s:\n", part.title)
			}
			said = true
			fmt.Fprintf(b, "#   line %d: %s: %s: %s\n", n.Line, n.Field, n.Value, n.Text)
		}
	}
	b.WriteString("\n")
}
