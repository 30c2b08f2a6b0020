package agentconfig

import (
	"reflect"
	"strings"
	"testing"
)

func TestWeb(t *testing.T) {
	for text, want := range map[string]Web{
		"":                      {},
		"web: {enabled: true}":  {},
		"web: {enabled: false}": {Off: true},
		"web: {hosts: [GPU1.Example.org, \"::1\"]}": {Hosts: []string{"gpu1.example.org", "::1"}},
	} {
		c, err := Parse("agent.yaml", []byte(head+text), nil)
		if err != nil || !reflect.DeepEqual(c.Web(), want) {
			t.Errorf("%q: %+v, %v", text, c.Web(), err)
		}
	}
	for text, want := range map[string]string{
		"web: {enabled: some}":             "web.enabled: must be true or false",
		"web: {hosts: gpu1}":               "web.hosts: must be a list of names, such as gpu1.example.org",
		"web: {hosts: [\"http://gpu1/\"]}": `web.hosts: "http://gpu1/" is not a name or an address without a port, such as gpu1.example.org`,
		"web: {hosts: [\"\"]}":             "is not a name",
		"web: {address: \"127.0.0.1:80\"}": "web.address: unknown field; known here: enabled, hosts",
	} {
		if _, err := Parse("agent.yaml", []byte(head+text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := (*Config)(nil).Web(); got.Off {
		t.Error("an agent without a configuration has no page")
	}
}
