package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/agent/control"
	"github.com/divvy-gpu/divvy/internal/doctor"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/rundir"
)

// diagnosed is what `divvy doctor` says of the agent, the driver and the variables, by id.
func diagnosed(t *testing.T) map[doctor.ID]doctor.Check {
	t.Helper()
	var out, said bytes.Buffer
	Main([]string{"doctor", "-o", "json"}, &out, &said)
	var report doctor.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%v: %s%s", err, &out, &said)
	}
	checks := map[doctor.ID]doctor.Check{}
	for _, c := range report.Checks {
		kind, _, _ := strings.Cut(string(c.ID), ".")
		if slices.Contains([]string{"agent", "driver", "variables"}, kind) {
			checks[c.ID] = c
		}
	}
	return checks
}

// A host whose agent serves virtual machines alone is well without NVIDIA's driver. When that agent is away its users are told to
// start the same one.
func TestDoctorOfAnAgentForMachines(t *testing.T) {
	info := control.Info{Protocol: control.ProtocolVersion, PID: 7, User: "root", MachinesOnly: true}
	l := succession(t, deeds{control.MethodList: func() (any, error) { return control.Listing{Info: info}, nil }})
	t.Setenv("CUDA_VISIBLE_DEVICES", "0")
	mark := rundir.Mark{Agent: process.ID{PID: 1, Start: 1 << 60}, Tenants: filepath.Join(l.dir, "tenants"), MachinesOnly: true}
	if err := rundir.WriteMark(l.dir, mark); err != nil {
		t.Fatal(err)
	}
	for id, c := range diagnosed(t) {
		if c.Status == doctor.Fail {
			t.Errorf("while the agent serves, %s is %+v", id, c)
		}
	}
	l.mu.Lock()
	err := l.last.Close()
	l.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	for id, c := range diagnosed(t) {
		if (c.Status == doctor.Fail) != (id == "agent") {
			t.Errorf("while the agent is away, %s is %+v", id, c)
		}
		if id == "agent" && !strings.Contains(c.Next, "`divvy agent --vm-only`") {
			t.Errorf("to do is %q", c.Next)
		}
	}
}
