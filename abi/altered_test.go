package abi

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// altered is the description of pages with other values for some constants.
func altered(t *testing.T, values map[string]string) []byte {
	t.Helper()
	text, err := os.ReadFile("pages.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range values {
		line := regexp.MustCompile(`(?m)^(  - \{name: ` + name + `, type: [a-z0-9]+, value: )[^,]+`)
		if !line.Match(text) {
			t.Fatalf("the description has no constant %s", name)
		}
		text = line.ReplaceAll(text, []byte("${1}"+value))
	}
	return text
}

// TestContradictionsAreRefused changes one value alone, where others have to
// follow: the generator says which.
func TestContradictionsAreRefused(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"devices", "33", "requires: devices <= 32, because a set of devices is the bits of a 32-bit word; here devices is 33"},
		{"devices", "1", "requires: devices >= 2"},
		{"slots", "65536", "slots is 65536, slot_bits is 16"},
		{"slots", "32768", "owner_bits is 16, generation_shift is 16"},
		{"holder_words", "16 * slots / 2048 - 1", "requires: holder_words * 64 >= slots"},
		{"owner_bits", "10", "requires: slots < 1 << owner_bits"},
		{"slot_bits", "30", "requires: slot_bits <= 24"},
		{"generation_shift", "30", "requires: generation_shift <= 24"},
		{"exports", "1_000_000_000", "state.export: "},
		{"action_bits", "30", "action_bits is 30"},
		{"action_bits", "1", "action_free is 3, action_bits is 1"},
		{"workers", "5_000_000", "gpu.worker: "},
		{"workers", "400_000", "requires: size(state) + devices * size(gpu) < 1 << 32"},
		{"lock_base", "0x10000", "lock_base is 65536"},
		{"lock_base", "0x7fffffffffffffff", "requires: lock_base + slots < 1 << 63"},
		{"intervals", "33", "intervals is 33"},
		{"pulses", "33", "pulses is 33"},
		{"export_key_bytes", "63", "export_key_bytes is 63"},
		{"slots", "1", "requires: slots >= 4"},
		{"pulses", "3", "requires: pulses >= 4"},
		{"intervals", "2", "requires: intervals >= 4"},
		{"slots", "0", "length slots is 0"},
		{"unit", "0", "requires: unit >= 512"},
		{"unit", "1", "requires: unit >= 512"},
		{"unit", "500", "requires: unit >= 512"},
		{"unit", "1000", "requires: 1 << bits(unit) == 2 * unit"},
		{"whole", "50", "requires: whole == 1_000_000"},
		{"flag_overcommit", "2", "flag_overcommit is 2"},
		{"flag_env", "1", "flag_env is 1, flag_overcommit is 1"},
		{"budget_limited", "0", "budget_limited is 0"},
		{"budget_beat", "1", "budget_beat is 1, budget_limited is 1"},
		{"budget_yield", "3", "budget_yield is 3, budget_beat is 2"},
		{"policy_weighted", "1", "policy_weighted is 1"},
		{"policy_fixed", "0", "policy_fixed is 0, policy_weighted is 0"},
		{"policy_burst", "3", "policy_burst is 3, policy_fixed is 1"},
		{"class_offline", "1", "class_offline is 1"},
		{"class_online", "0", "class_online is 0, class_offline is 0"},
		{"export_free", "1", "export_free is 1"},
		{"export_live", "0", "export_live is 0, export_free is 0"},
		{"action_none", "1", "action_none is 1"},
		{"action_publish", "0", "action_publish is 0, action_none is 0"},
		{"action_publish", "2", "action_grow is 2, action_publish is 2"},
		{"action_publish", "5", "action_grow is 2, action_publish is 5"},
		{"action_grow", "3", "action_free is 3, action_grow is 3"},
		{"descriptors_none", "1", "descriptors_none is 1"},
		{"descriptors_marked", "2", "descriptors_marked is 2, descriptors_none is 0"},
		{"descriptors_scattered", "3", "descriptors_scattered is 3, descriptors_marked is 1"},
		{"descriptors_unmarked", "2", "descriptors_unmarked is 2, descriptors_scattered is 2"},
		{"mark_base", "1 << 62", "mark_base is 4611686018427387904"},
		{"action_free", "4", "action_free is 4, action_bits is 2"},
		{"lease_ns", "100_000_000", "stale_ns is 100000000, lease_ns is 100000000"},
	} {
		_, err := ParseLayout("abi/pages.yaml", altered(t, map[string]string{c.name: c.value}))
		if err == nil || !strings.Contains(err.Error(), c.want) || !regexp.MustCompile(`(?m)^abi/pages\.yaml:[1-9][0-9]+: `).MatchString(err.Error()) {
			t.Errorf("%s %s: have %v, want a line and %q", c.name, c.value, err, c.want)
		}
	}
}

// TestAlteredLimits changes only the numbers that people may wish to change, and
// runs the tests of both sides: C's under sanitizers, with arrays of
// every size that follows.
func TestAlteredLimits(t *testing.T) {
	for name, values := range map[string]map[string]string{
		"more": {"devices": "32", "slots": "2048", "exports": "1000", "workers": "100", "pulses": "32", "intervals": "64"},
		"odd":  {"devices": "18", "slots": "1000"},
		"few":  {"devices": "4", "slots": "70", "workers": "5", "pulses": "4"},
		"least and large units": {
			"devices": "2", "slots": "4", "exports": "1", "workers": "1", "pulses": "4", "intervals": "4", "unit": "4194304",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			layout, err := ParseLayout("abi/pages.yaml", altered(t, values))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range layout.Constants {
				if value, ok := values[c.Name]; ok && c.cText() != value {
					t.Errorf("%s is %s, want %s", c.Name, c.cText(), value)
				}
			}
			dir := t.TempDir()
			runC(t, dir, layout)
			runGo(t, dir, layout)
		})
	}
}

// runC compiles lib/share with the altered header and runs its test of limits.
func runC(t *testing.T, dir string, layout *Layout) {
	t.Helper()
	header := filepath.Join(dir, "abi/generated/page_layout.h")
	if err := os.MkdirAll(filepath.Dir(header), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(header, []byte(layout.C("abi/pages.yaml")), 0o644); err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Glob("../lib/share/*.c")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources of lib/share: %v", err)
	}
	program := filepath.Join(dir, "limits")
	args := []string{
		"-std=gnu11", "-O0", "-g", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pthread",
		"-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", // a share is mapped: only bounds show what is beyond it
		"-I" + dir, "-I../lib", "-o", program, "../lib/share/test/limits.c", "../lib/share/test/tenant.c",
	}
	if runtime.GOARCH == "amd64" {
		args = append(args, "-mcx16")
	}
	if out, err := exec.CommandContext(t.Context(), "cc", append(args, sources...)...).CombinedOutput(); err != nil {
		t.Fatalf("compile lib/share: %v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), program).CombinedOutput(); err != nil {
		t.Errorf("run lib/share/test/limits: %v\n%s", err, out)
	}
}

// runGo runs the tests of internal/page with the altered Go file.
func runGo(t *testing.T, dir string, layout *Layout) {
	t.Helper()
	text, err := layout.Go("abi/pages.yaml", "page")
	if err != nil {
		t.Fatal(err)
	}
	test, err := layout.GoTest("abi/pages.yaml", "page")
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for name, text := range map[string]string{"layout_generated.go": text, "layout_generated_test.go": test} {
		path, err := filepath.Abs(filepath.Join("../internal/page", name))
		if err != nil {
			t.Fatal(err)
		}
		replace[path] = filepath.Join(dir, name)
		if err := os.WriteFile(replace[path], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-overlay="+file, "./internal/page")
	command.Dir = ".."
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("test internal/page: %v\n%s", err, out)
	}
}
