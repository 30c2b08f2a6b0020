package servefile

import (
	"reflect"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

const head = "apiVersion: divvy.dev/v1alpha1\nkind: ServeConfig\n"

func anybody(string) error { return nil }

func TestParse(t *testing.T) {
	f, err := Parse("serve.yaml", []byte(head+`gpus: [0, 3]
clients:
  ada: {user: ada, memory: 48Gi, cores: 100, shares: 4, class: offline}
  bea: {user: bea, commands: true, environment: [LANG, "SLURM_*"]}
`), anybody)
	want := &File{Listen: ":7117", GPUs: []string{"0", "3"}, Clients: map[string]Client{
		"ada": {Name: "ada", User: "ada", Memory: 48 << 30, Cores: 100, Shares: 4, Class: v1alpha1.ClassOffline},
		"bea": {Name: "bea", User: "bea", Commands: true, Environment: []string{"LANG", "SLURM_*"}},
	}}
	if err != nil || !reflect.DeepEqual(f, want) {
		t.Errorf("%+v, %v", f, err)
	}
}
