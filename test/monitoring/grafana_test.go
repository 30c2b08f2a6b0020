package monitoring

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// typed is a program of TypeScript's that is sound if a dashboard has the types of @grafana/schema. These leave what a
// panel's plugin reads open, so that is compared with the plugin's own types; where they want an enumeration, JSON has its
// text.
const typed = `import type { Dashboard } from '@grafana/schema';
import type { FieldConfig, Options } from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
type Plain<T> = T extends string ? ` + "`${T}`" + ` : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
export const dashboard: Dashboard = DASHBOARD;
export const options: Plain<Partial<Options>>[] = OPTIONS;
export const fields: Plain<FieldConfig>[] = FIELDS;
`

// panelOptions are what the plugin of a panel reads.
type panelOptions struct {
	Type        string
	Options     json.RawMessage
	FieldConfig struct {
		Defaults struct{ Custom json.RawMessage }
	}
}

// programOf is TypeScript's for a dashboard.
func programOf(t *testing.T, content []byte) []byte {
	t.Helper()
	var d struct{ Panels []panelOptions }
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	options, fields := []json.RawMessage{}, []json.RawMessage{}
	for _, p := range d.Panels {
		if p.Type != "timeseries" {
			t.Fatalf("a panel of type %q: its plugin's types are not compared", p.Type)
		}
		options = append(options, p.Options)
		if p.FieldConfig.Defaults.Custom != nil {
			fields = append(fields, p.FieldConfig.Defaults.Custom)
		}
	}
	program := []byte(typed)
	for name, value := range map[string]any{"DASHBOARD": json.RawMessage(content), "OPTIONS": options, "FIELDS": fields} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		program = bytes.Replace(program, []byte(name), text, 1)
	}
	return program
}

// compile has TypeScript check programs, by name, and returns what it found.
func compile(t *testing.T, programs map[string][]byte) (said string, err error) {
	t.Helper()
	modules := file(t, ".cache/grafana/node_modules")
	if _, err := os.Stat(filepath.Join(modules, "typescript")); err != nil {
		installtest.Missing(t, "grafana", errors.Join(err, errors.New("run hack/grafana.sh .cache/grafana")))
	}
	node, err := exec.LookPath("node")
	if err != nil {
		installtest.Missing(t, "grafana", err)
	}
	dir := t.TempDir()
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	arguments := []string{
		filepath.Join(modules, "typescript/lib/tsc.js"), "--noEmit", "--strict", "--skipLibCheck",
		"--module", "nodenext", "--moduleResolution", "nodenext", "--target", "es2022",
	}
	for name, program := range programs {
		if err := os.WriteFile(filepath.Join(dir, name+".ts"), program, 0o600); err != nil {
			t.Fatal(err)
		}
		arguments = append(arguments, name+".ts")
	}
	command := exec.Command(node, arguments...)
	command.Dir = dir
	text, err := command.CombinedOutput()
	return string(text), err
}

// Every dashboard has the types that Grafana's own package gives dashboards and panels.
func TestDashboardsAreOfGrafanasTypes(t *testing.T) {
	programs := map[string][]byte{}
	for name := range dashboards(t) {
		programs[name] = programOf(t, text(t, "deploy/chart/files/dashboards", name))
	}
	if said, err := compile(t, programs); err != nil {
		t.Errorf("%v: %s", err, said)
	}
}

// The comparison finds a wrong type in a dashboard, and in what a panel's plugin reads.
func TestWrongTypesAreFound(t *testing.T) {
	sound := text(t, "deploy/chart/files/dashboards/shares.json")
	for _, wrong := range [][2]string{{`"title": `, `"title": 1, "former": `}, {`"displayMode": "list"`, `"displayMode": "heap"`}, {`"fillOpacity": `, `"fillOpacities": `}} {
		program := programOf(t, bytes.Replace(sound, []byte(wrong[0]), []byte(wrong[1]), 1))
		if said, err := compile(t, map[string][]byte{"shares": program}); err == nil {
			t.Errorf("%s is not found: %s", wrong[1], said)
		}
	}
}
