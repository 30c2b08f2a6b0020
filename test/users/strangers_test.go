package users

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/page"
)

// squat takes the names of the GPUs that it is given and answers nobody.
const squat = `
import socket, sys
kept = []
for uuid in sys.argv[1:]:
    s = socket.socket(socket.AF_UNIX)
    s.bind("\0divvy/gpu/" + uuid)
    s.listen(1)
    kept.append(s)
print("taken", flush=True)
sys.stdin.read()
`

// Who takes the names of all GPUs and is no agent keeps users' own agents away, and is
// named; the system agent serves all the same, and goes on as soon as it can.
func TestSquatter(t *testing.T) {
	s := newServer(t)
	uuids := s.uuids()
	if len(uuids) != 8 {
		t.Fatalf("GPUs %v", uuids)
	}
	squatter := s.start("u6", true, append([]string{"python3", "-c", squat}, uuids...)...)
	// Its process is named while it has room for callers, its user also afterwards.
	s.refused("u1", []string{"GPU 3 ", "user u6"}, "divvy", "run", "--gpu", "3", "--memory", "1Gi", "--", "true")
	s.agent()
	s.ok("u1", "divvy", "run", "--gpu", "3", "--memory", "1Gi", "--", "gpubench", "info")
	if o := s.run("root", "divvy", "doctor"); o.status != 1 || strings.Count(o.out, "fail  GPU held: GPU-") != 8 || !strings.Contains(o.out, "by the agent of user u6") {
		t.Errorf("doctor says\n%s", o.out)
	}
	squatter.end()
	s.eventually("the system agent has all names", func() bool {
		return !strings.Contains(s.run("root", "divvy", "doctor").out, "GPU held")
	})
}

// An own agent that says that its shares are elsewhere leads nobody anywhere.
const liar = `
import json, os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind("\0divvy/gpu/" + sys.argv[1])
s.listen(8)
print("taken", flush=True)
while True:
    c, _ = s.accept()
    f = c.makefile("rw")
    for line in f:
        q = json.loads(line)
        result = {"protocol": 2, "ephemeral": True} if q["method"] == "hello" else {"tenants": sys.argv[2]}
        f.write(json.dumps({"id": q["id"], "result": result}) + "\n")
        f.flush()
`

func TestLiar(t *testing.T) {
	s := newServer(t)
	uuids := s.uuids()
	victim := s.hold("u1", "1Gi", "--gpu", "0", "--memory", "4Gi", "--name", "train")
	for i, lie := range []string{"/dev/shm/divvy-2001/tenants", "/etc", "relative", "/dev/shm/divvy-2006/../divvy-2001/tenants", "/dev/shm/link/tenants"} {
		s.ok("u6", "ln", "-sfn", "/dev/shm/divvy-2001", "/dev/shm/link")
		s.start("u6", true, "python3", "-c", liar, uuids[i+1], lie)
	}
	s.agent()
	list := s.list()
	if len(list.Tenants) != 1 || list.Tenants[0].User != "u1" || list.Tenants[0].Shares[0].Limit != 4*gib {
		t.Errorf("taken over are %+v", list.Tenants)
	}
	victim.end()
	s.eventually("the share has ended", func() bool { return len(s.list().Tenants) == 0 })
}

// The user of a share that was taken over can change what its programs read, and is
// reported when these have more than the system agent's record says.
func TestCooperativeShareIsJudgedByTheRecord(t *testing.T) {
	s := newServer(t)
	p := s.start("u1", true, "divvy", "run", "--gpu", "0", "--memory", "4Gi", "--name", "train", "--",
		"sh", "-c", "echo; read x; exec gpubench hold --bytes 12Gi")
	s.agent()
	pages, err := filepath.Glob(s.root + "/dev/shm/divvy-2001/tenants/*/config")
	if err != nil || len(pages) != 1 {
		t.Fatalf("%v, %v", pages, err)
	}
	if err := page.UpdateConfig(pages[0], func(c *page.Config) { c.Device[0].Limit = 20 * gib }); err != nil {
		t.Fatal(err)
	}
	if _, err := p.input.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	s.eventually("it is reported", func() bool {
		tenant, ok := find(s.list(), "u1", "train")
		if !ok || tenant.Shares[0].Limit != 4*gib {
			t.Fatalf("the record says %+v", tenant)
		}
		return strings.Contains(s.run("u1", "divvy", "ls").out, "by the driver's figures, and it was granted 4Gi")
	})
}
