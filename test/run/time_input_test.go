package run

import (
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/process"
)

// A request that cannot be kept is answered in one line with what can, and with a pointer to the help.
func TestImpossiblePromises(t *testing.T) {
	h := newHost(t)
	h.hold([]string{"--memory", "1Gi", "--name", "seventy", "--policy", "fixed", "--cores", "70"}, "sh", "-c", "echo; read x")
	holder := process.UserName(os.Getuid()) + "/seventy"
	const cores = `: give a whole number from 1 to 100, the percentage of the GPU's time`
	for args, says := range map[string]string{
		"run --cores 0":      `invalid argument "0" for "--cores" flag` + cores,
		"run --cores 101":    `invalid argument "101" for "--cores" flag` + cores,
		"run --cores -1":     `invalid argument "-1" for "--cores" flag` + cores,
		"run --cores many":   `invalid argument "many" for "--cores" flag` + cores,
		"run --weight 0":     `invalid argument "0" for "--weight" flag: give a whole number, 1 or more`,
		"run --weight 1001":  "invalid request: weight 1001: give 1 to 1000",
		"run --class best":   `invalid request: class "best": use online or offline`,
		"run --policy fair":  `invalid request: policy "fair": use fixed, weighted or burst`,
		"run --policy fixed": "invalid request: policy fixed needs cores: add --cores, 1 to 100",
		"run --policy burst": "invalid request: policy burst needs the cores it guarantees: add --cores, 1 to 100",
		"run --policy burst --cores 30 --max-cores 9": "invalid request: max cores 9: give the share's cores, 30, to 100 percent of the GPU's time",
		"run --max-cores 50":                          "invalid request: max cores 50 need policy burst, not weighted",
		"run --cores 30 --weight 5":                   "invalid request: weight 5 needs policy weighted, not fixed",
		"run --memory 1Gi --cores 31":                 "GPU 0 has 30 of 100 cores left to guarantee and the share needs 31; " + holder + " holds 70 cores: ask for at most 30, add --wait to queue or add --overcommit",
		"set seventy --cores 101":                     `invalid argument "101" for "--cores" flag` + cores,
		"set seventy --weight 2":                      "invalid request: weight 2 needs policy weighted, not fixed",
		"set seventy --class best":                    `invalid request: class "best": use online or offline`,
		"set gone --cores 20":                         "no such share: \"gone\": `divvy ls` lists them",
	} {
		command, rest, _ := strings.Cut(args, " ")
		flags := append([]string{command, "--simgpu", "m"}, strings.Fields(rest)...)
		status := 1
		if command == "run" {
			flags, status = append(flags, "--", "true"), 125
		}
		o := h.divvy(flags...)
		said, _, _ := strings.Cut(o.err, "\n")
		if said != "divvy: "+says || (o.status != status && o.status != 2) {
			t.Errorf("%s: exit status %d\n got %s\nwant divvy: %s", args, o.status, said, says)
		}
	}
	// The same request is granted with --overcommit.
	if o := h.run("--cores", "31", "--memory", "1Gi", "--overcommit", "--", "echo", "granted"); o.status != 0 || o.out != "granted" {
		t.Errorf("overcommitted cores: exit status %d, %s", o.status, o.err)
	}
	h.ok("set", "seventy", "--simgpu", "m", "--cores", "30")
	if tenant, ok := h.tenant("seventy"); !ok || tenant.Shares[0].Cores != 30 {
		t.Errorf("after set: %+v", tenant)
	}
}

func TestSettingAShareThatIsGone(t *testing.T) {
	h := newHost(t)
	s := h.hold([]string{"--memory", "1Gi", "--name", "gone"}, "sh", "-c", "echo; read x")
	s.end()
	h.eventually("the share has ended", func() bool { _, ok := h.tenant("gone"); return !ok })
	if o := h.divvy("set", "gone", "--simgpu", "m", "--cores", "20"); o.status == 0 || !strings.Contains(o.err, "gone") {
		t.Errorf("exit status %d, %s", o.status, o.err)
	}
}
