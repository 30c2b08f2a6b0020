package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/cli/program"
	"github.com/divvy-gpu/divvy/internal/dialect"
)

func TestConvert(t *testing.T) {
	for name, want := range map[string]int{"sharing": 0, "refused": program.ExitFailure, "whole": 0, "mig": 0} {
		for _, form := range []string{"agent", "values", "table", "json"} {
			path := filepath.Join("testdata/convert", name+".yaml")
			status, out, errOut := call(t, "convert", "-o", form, path)
			if status != want {
				t.Errorf("%s: status %d, not %d: %s", name, status, want, errOut)
			}
			golden(t, filepath.Join("convert", name+"."+form), out)
			if name == "refused" && (strings.Count(errOut, "refused: ") != 4 || !strings.Contains(errOut, path+":3: flags.deviceDiscoveryStrategy: refused: ")) {
				t.Errorf("the refused keys are told as\n%s", errOut)
			}
		}
	}
}

// What is written for the chart has the file unchanged, and options that the webhook takes.
func TestConvertedValuesAreRead(t *testing.T) {
	for _, name := range []string{"sharing", "refused", "whole", "mig"} {
		path := filepath.Join("testdata/convert", name+".yaml")
		_, out, _ := call(t, "convert", "-o", "values", path)
		var values struct {
			Agent struct {
				DevicePlugin struct{ Configs map[string]string }
			}
		}
		if err := yaml.Unmarshal([]byte(out), &values); err != nil {
			t.Fatal(err)
		}
		var claims struct{ Dialects map[string]any }
		_, comment, _ := strings.Cut(out, ", which mode slots takes alone:\n# ")
		if err := yaml.Unmarshal([]byte(strings.Split(comment, "}}")[0]+"}}"), &claims); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := string(text)
		if name == "refused" {
			want = ""
		}
		if got := values.Agent.DevicePlugin.Configs["default"]; got != want {
			t.Errorf("%s: the chart has the file as\n%s", name, got)
		}
		config, err := yaml.Marshal(map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": "WebhookConfig", "dialects": claims.Dialects})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dialect.NewTranslator(config); err != nil {
			t.Errorf("%s: the webhook refuses\n%s: %v", name, config, err)
		}
	}
}

func TestConvertWrongUsage(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("version: v1\nsharing:\n  renameByDefault: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"form":    {[]string{"-o", "toml", bad}, program.ExitUsage, "choose agent, values, table or json"},
		"no file": {nil, program.ExitUsage, "give one file"},
		"nowhere": {[]string{"/nowhere.yaml"}, program.ExitFailure, "/nowhere.yaml"},
		"key":     {[]string{bad}, program.ExitFailure, "bad.yaml:3: sharing.renameByDefault: this key does not belong here: its place is sharing.timeSlicing.renameByDefault"},
	} {
		status, out, errOut := call(t, append([]string{"convert"}, test.args...)...)
		if status != test.status || !strings.Contains(errOut, test.want) || out != "" {
			t.Errorf("%s: %d, %s%s; want %d and %q", name, status, out, errOut, test.status, test.want)
		}
	}
}
