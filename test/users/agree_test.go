package users

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/doctor"
)

// agreement is a machine that something is wrong with, or nothing.
type agreement struct {
	// agent is true where the system agent serves before anything is spoilt.
	agent bool
	// spoil is a script that root runs.
	spoil string
	// killed is true where the system agent has been killed.
	killed bool
	// env are variables of the user's.
	env []string
	// id is what doctor has to find, "" for nothing; works is what both have to say.
	id    doctor.ID
	works bool
	// full is true where another user holds all GPUs.
	full bool
	// bare is true for a machine without a driver.
	bare bool
}

// doctor's exit status is what `divvy run` comes to, whatever is wrong with the machine.
func TestDoctorAgreesWithRun(t *testing.T) {
	const library = "$(readlink -f $DIVVY_SIMGPU)/libcuda.so.1"
	for name, c := range map[string]agreement{
		"nothing is wrong":                    {agent: true, works: true},
		"no agent runs":                       {works: true},
		"no driver":                           {bare: true, id: "driver.libraries"},
		"no driver, and a simulated agent":    {bare: true, agent: true, works: true},
		"the driver's library is garbage":     {spoil: "rm " + library + "; echo garbage > " + library, id: "driver.libraries"},
		"the driver's library is gone":        {spoil: "rm -f " + library + "; ldconfig", id: "driver.libraries"},
		"the agent was killed":                {agent: true, killed: true, id: "agent"},
		"the socket is closed to users":       {agent: true, spoil: "chmod 600 /run/divvy/agent.sock", id: "agent"},
		"the run directory is a file":         {spoil: "touch /run/divvy", id: "rundir.system"},
		"the own run directory is another's":  {spoil: "install -d -o u2 /dev/shm/divvy-2001", id: "rundir.own"},
		"the own run directory, and an agent": {agent: true, spoil: "install -d -o u2 /dev/shm/divvy-2001", id: "rundir.own", works: true},
		"shared memory is full":               {spoil: "mount -t tmpfs -o mode=1777,size=64k tmpfs /dev/shm", id: "shared-memory"},
		"the configuration is faulty":         {spoil: "mkdir -p /etc/divvy; echo nonsense > /etc/divvy/agent.yaml", id: "agent"},
		"the configuration became faulty":     {agent: true, spoil: "mkdir -p /etc/divvy; echo nonsense > /etc/divvy/agent.yaml", id: "agent.configuration", works: true},
		"CUDA_VISIBLE_DEVICES is empty":       {agent: true, env: []string{"CUDA_VISIBLE_DEVICES="}, id: "variables.visible"},
		"CUDA_VISIBLE_DEVICES names no GPU":   {agent: true, env: []string{"CUDA_VISIBLE_DEVICES=9"}, id: "variables.visible"},
		"it names another machine's":          {env: []string{"CUDA_VISIBLE_DEVICES=GPU-00000000-0000-0000-0000-000000000000"}, id: "variables.visible"},
		"it names a MIG instance":             {agent: true, env: []string{"CUDA_VISIBLE_DEVICES=MIG-00000000-0000-0000-0000-000000000000"}, id: "variables.visible"},
		"it is as it should be":               {agent: true, env: []string{"CUDA_VISIBLE_DEVICES=3"}, works: true},
		"its order is misspelt":               {agent: true, env: []string{"CUDA_VISIBLE_DEVICES=3", "CUDA_DEVICE_ORDER=PCI"}, id: "variables.order", works: true},
		"others hold all memory":              {agent: true, full: true, id: "agent.room"},
		"a library was preloaded":             {agent: true, env: []string{"LD_PRELOAD=/nowhere/libcuda.so.1"}, id: "variables.preload", works: true},
		"Divvy's library is gone":             {env: []string{"DIVVY_PREFIX=/opt/half"}, spoil: "mkdir -p /opt/half; cp -a /opt/divvy/bin /opt/divvy/libexec /opt/half", id: "installation"},
	} {
		t.Run(name, func(t *testing.T) { c.check(t) })
	}
}

func (c agreement) check(t *testing.T) {
	s := newBareServer(t)
	if !c.bare {
		if err := s.StartGPUs(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var agent *program
	if c.agent && c.bare {
		agent = s.agent("--simgpu", "t4")
	} else if c.agent {
		agent = s.agent()
	}
	if c.killed {
		agent.kill(syscall.SIGKILL)
	}
	if c.full {
		s.hold("u2", "1Gi", "--gpus", "all")
	}
	if c.spoil != "" {
		s.asRoot("sh", "-c", c.spoil)
	}
	as := func(args ...string) outcome {
		return s.run("u1", append(append([]string{"env"}, c.env...), args...)...)
	}
	o := as("divvy", "doctor", "-o", "json")
	var report doctor.Report
	if err := json.Unmarshal([]byte(o.out), &report); err != nil {
		t.Fatalf("%v: %+v", err, o)
	}
	var wrong []string
	found := c.id == ""
	for _, check := range report.Checks {
		if check.Status != doctor.OK {
			wrong = append(wrong, string(check.ID)+": "+check.Found)
			found = found || check.ID == c.id
		}
	}
	if !found || c.id == "" && len(wrong) > 0 {
		t.Errorf("doctor finds %q, want %q", wrong, c.id)
	}
	if (o.status == 0) != c.works || report.Works != c.works {
		t.Errorf("doctor says %v with exit status %d: %q", report.Works, o.status, wrong)
	}
	// Where a system agent has to be waited for, half a minute passes first.
	if run := as("timeout", "50", "divvy", "run", "--memory", "1Gi", "--", "true"); (run.status == 0) != c.works {
		t.Errorf("divvy run ends with %d: %s\ndoctor found %s", run.status, run.err, strings.Join(wrong, "; "))
	}
}
