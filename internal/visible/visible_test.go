package visible

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

const (
	a = "GPU-aaaa0000-0000-0000-0000-000000000000"
	b = "GPU-ab000000-0000-0000-0000-000000000000"
	c = "GPU-c0000000-0000-0000-0000-000000000000"
	d = "GPU-d0000000-0000-0000-0000-000000000000"
)

var errBlind = errors.New("initialise CUDA: result 999")

// machine is four GPUs as NVML numbers them. CUDA shows the third first.
func machine() Sight {
	return Sight{
		Served: []GPU{{0, a}, {1, b}, {2, c}, {3, d}},
		Shown:  []string{c, a, b, d},
	}
}

// job is a job on the machine whose cgroup leaves it two GPUs.
func job() Sight {
	s := machine()
	s.Hidden, s.Shown = true, []string{b, d}
	return s
}

func blind(s Sight) Sight {
	s.Shown, s.Blind = nil, errBlind
	return s
}

func choose(w Wish, s Sight) (Choice, error) {
	if err := w.Validate(); err != nil {
		return Choice{}, err
	}
	return Choose(w, s)
}

func set(value string) *string { return &value }

func TestChoose(t *testing.T) {
	whole := machine()
	for name, test := range map[string]struct {
		wish  Wish
		sight Sight
		among string // of the machine's GPUs, by letter
		count int
	}{
		"nothing said":                     {Wish{}, whole, "", 0},
		"a number":                         {Wish{Count: 2}, whole, "", 2},
		"by index":                         {Wish{Named: []string{"3", "0"}}, whole, "da", 2},
		"by the beginning of a UUID":       {Wish{Named: []string{"gpu-AB"}}, whole, "b", 1},
		"one of several":                   {Wish{Named: []string{"3", "0"}, Count: 1}, whole, "da", 1},
		"all":                              {Wish{All: true}, whole, "abcd", 4},
		"the variable, in CUDA's order":    {Wish{Variable: set("0")}, whole, "c", 1},
		"the variable, several":            {Wish{Variable: set(" 3 , 1 ")}, whole, "da", 2},
		"the variable, fewer":              {Wish{Variable: set("3,1"), Count: 1}, whole, "da", 1},
		"the variable by UUID":             {Wish{Variable: set(b)}, blind(whole), "b", 1},
		"the variable, a beginning":        {Wish{Variable: set("gpu-AA,GPU-c")}, blind(whole), "ac", 2},
		"the variable, both":               {Wish{Variable: set("0,GPU-d")}, whole, "cd", 2},
		"the variable and all":             {Wish{Variable: set("1,2"), All: true}, whole, "ab", 2},
		"-1 ends the list":                 {Wish{Variable: set("0,2,-1,1")}, whole, "cb", 2},
		"a comma at the end":               {Wish{Variable: set("2,")}, whole, "b", 1},
		"leading zeros":                    {Wish{Variable: set("02")}, whole, "b", 1},
		"the variable and a flag agree":    {Wish{Variable: set("0,1"), Named: []string{"2"}}, whole, "c", 1},
		"a flag by UUID":                   {Wish{Variable: set("0,1"), Named: []string{c}}, whole, "c", 1},
		"a job":                            {Wish{}, job(), "bd", 1},
		"a job, two":                       {Wish{Count: 2}, job(), "bd", 2},
		"a job, all":                       {Wish{All: true}, job(), "bd", 2},
		"a job, numbered from 0":           {Wish{Variable: set("1")}, job(), "d", 1},
		"a job by UUID":                    {Wish{Variable: set("GPU-d")}, job(), "d", 1},
		"a job, a beginning only one has":  {Wish{Variable: set("GPU-a")}, job(), "b", 1},
		"a job, the machine's index":       {Wish{Named: []string{"3"}}, job(), "d", 1},
		"a job, blind, by UUID":            {Wish{Variable: set(b)}, blind(job()), "b", 1},
		"a job, blind, by UUID with --gpu": {Wish{Named: []string{d}}, blind(job()), "d", 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := choose(test.wish, test.sight)
			if err != nil {
				t.Fatal(err)
			}
			var letters string
			for _, uuid := range got.Among {
				letters += string("abcd"[slices.Index([]string{a, b, c, d}, uuid)])
			}
			if letters != test.among || got.Count != test.count {
				t.Errorf("got %d of %q, want %d of %q", got.Count, letters, test.count, test.among)
			}
		})
	}
}

func TestChooseRefuses(t *testing.T) {
	whole := machine()
	empty := machine()
	empty.Shown = nil
	none := job()
	none.Shown = nil
	silent := machine()
	silent.LeftOut = []int{8}
	for name, test := range map[string]struct {
		wish  Wish
		sight Sight
		is    error
		says  string
	}{
		"contradiction":              {Wish{Variable: set("1"), Named: []string{"3"}}, whole, ErrChoice, "--gpu 3 contradicts CUDA_VISIBLE_DEVICES=1, which leaves GPU 0 (GPU-aaaa"},
		"more than are named":        {Wish{Variable: set("0,1"), Count: 3}, whole, ErrChoice, "--gpus 3 asks for more than the 2 GPUs of CUDA_VISIBLE_DEVICES=0,1: GPU 2 ("},
		"more than --gpu names":      {Wish{Named: []string{"1"}, Count: 2}, whole, ErrChoice, "the 1 GPU that --gpu names: GPU 1 ("},
		"all and a name":             {Wish{All: true, Named: []string{"1"}}, whole, ErrChoice, "exclude each other"},
		"empty":                      {Wish{Variable: set("")}, whole, ErrChoice, `CUDA_VISIBLE_DEVICES="" means no GPU`},
		"-1":                         {Wish{Variable: set("-1")}, whole, ErrChoice, "env -u CUDA_VISIBLE_DEVICES"},
		"-1 before others":           {Wish{Variable: set("-1,0")}, whole, ErrChoice, "means no GPU"},
		"NoDevFiles":                 {Wish{Variable: set("NoDevFiles")}, whole, ErrChoice, "means no GPU"},
		"empty, with a flag":         {Wish{Variable: set(""), Named: []string{"1"}}, whole, ErrChoice, "means no GPU"},
		"too far":                    {Wish{Variable: set("4")}, whole, ErrUnknown, "CUDA shows this process GPUs 0 to 3 and no GPU 4"},
		"too far in a job":           {Wish{Variable: set("2")}, job(), ErrUnknown, "GPUs 0 to 1 and no GPU 2"},
		"no GPU shown":               {Wish{Variable: set("0")}, empty, ErrUnknown, "shows this process no GPU"},
		"twice":                      {Wish{Variable: set("1,1")}, whole, ErrChoice, "names GPU 1 twice"},
		"twice by two names":         {Wish{Variable: set("0,GPU-c")}, whole, ErrChoice, "names one GPU twice, as 0 and GPU-c"},
		"nonsense":                   {Wish{Variable: set("0,x,1")}, whole, ErrChoice, `"x" is neither an index nor a UUID`},
		"nothing between commas":     {Wish{Variable: set("0,,1")}, whole, ErrChoice, `"" is neither`},
		"negative":                   {Wish{Variable: set("-2")}, whole, ErrChoice, `"-2" is neither`},
		"hexadecimal":                {Wish{Variable: set("0x1")}, whole, ErrChoice, "is neither"},
		"MIG":                        {Wish{Variable: set("MIG-" + a[4:])}, whole, ErrChoice, "names a MIG instance"},
		"MIG in the old form":        {Wish{Variable: set("mig-" + a + "/1/0")}, whole, ErrChoice, "names a MIG instance"},
		"ambiguous":                  {Wish{Variable: set("GPU-a")}, whole, ErrChoice, "the beginning of 2 GPUs' UUIDs"},
		"unknown UUID":               {Wish{Variable: set("GPU-f")}, whole, ErrUnknown, "GPU-f does not exist and this machine has GPUs 0 to 3"},
		"blind":                      {Wish{Variable: set("0")}, blind(whole), ErrChoice, "result 999: give UUIDs"},
		"hidden":                     {Wish{Named: []string{"0"}}, job(), ErrChoice, "GPU 0 is hidden from this process: the 2 GPUs that this process may use: GPU 1 ("},
		"hidden by UUID":             {Wish{Variable: set(a)}, job(), ErrUnknown, "CUDA does not show " + a},
		"all hidden":                 {Wish{}, none, ErrChoice, "every GPU is hidden"},
		"a job, blind":               {Wish{}, blind(job()), ErrChoice, "name the job's GPUs by UUID with --gpu"},
		"a job, blind, by index":     {Wish{Named: []string{"1"}}, blind(job()), ErrChoice, "name the job's GPUs by UUID with --gpu"},
		"unknown index":              {Wish{Named: []string{"8"}}, whole, ErrUnknown, "GPU 8 does not exist and this machine has GPUs 0 to 3: `divvy ls -o wide` shows their UUIDs"},
		"silent at the start":        {Wish{Named: []string{"8"}}, silent, ErrUnknown, "GPU 8 is left out, because the driver did not answer about it"},
		"unknown beside a silent":    {Wish{Named: []string{"9"}}, silent, ErrUnknown, "GPU 9 does not exist"},
		"twice by index and UUID":    {Wish{Named: []string{"1", b}}, whole, ErrChoice, "is named twice, as 1 and GPU-ab"},
		"all of a machine with none": {Wish{All: true}, Sight{}, ErrChoice, "this machine has no GPU"},
		"a long list":                {Wish{Variable: set(strings.Repeat("0,", 300))}, whole, ErrChoice, "301 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := choose(test.wish, test.sight)
			if !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, %v; want %q", got, err, test.says)
			}
		})
	}
}

// Only what is needed is asked for: to initialise CUDA takes long.
func TestAsks(t *testing.T) {
	for name, test := range map[string]struct {
		wish                  Wish
		hidden, served, shown bool
	}{
		"nothing said":  {wish: Wish{}},
		"names":         {wish: Wish{Named: []string{"1"}}},
		"all":           {wish: Wish{All: true}, served: true},
		"UUIDs":         {wish: Wish{Variable: set("GPU-a")}, served: true},
		"indexes":       {wish: Wish{Variable: set("GPU-a,1")}, served: true, shown: true},
		"a job":         {wish: Wish{}, hidden: true, served: true, shown: true},
		"no GPU":        {wish: Wish{Variable: set("")}, served: true},
		"out of bounds": {wish: Wish{Variable: set("x,1")}, served: true},
	} {
		if served, shown := test.wish.Asks(test.hidden); served != test.served || shown != test.shown {
			t.Errorf("%s: asks for %v and %v, want %v and %v", name, served, shown, test.served, test.shown)
		}
	}
}

// driverShows is what CUDA's documentation says a value shows, written apart from the
// package: entries up to the first that names nothing, and nothing if one is named twice.
func driverShows(value string, shown []string) []string {
	var list []string
	for _, entry := range strings.Split(value, ",") {
		entry = strings.TrimSpace(entry)
		var matches []string
		for i, uuid := range shown {
			number := strings.TrimLeft(entry, "0")
			if entry != "" && entry[0] == '0' && number == "" {
				number = "0"
			}
			if number == string(rune('0'+i)) || len(entry) > 4 && strings.HasPrefix(strings.ToLower(uuid), strings.ToLower(entry)) {
				matches = append(matches, uuid)
			}
		}
		if len(matches) != 1 {
			break
		}
		if slices.Contains(list, matches[0]) {
			return nil
		}
		list = append(list, matches[0])
	}
	return list
}

// What is accepted is what CUDA would show: no value chooses another GPU.
func FuzzVariable(f *testing.F) {
	for _, seed := range []string{"", "0", "0,1", "-1", "1,-1,0", "GPU-a", "GPU-ab,0", "gpu-C", "MIG-x", "NoDevFiles", "0,,1", "00", " 1 ,", "0x1", "9999", "\x00", "1,1"} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, value string, hidden bool) {
		s := machine()
		if hidden {
			s = job()
		}
		w := Wish{Variable: &value}
		got, err := choose(w, s)
		if err != nil {
			if got.Among != nil || !errors.Is(err, ErrChoice) && !errors.Is(err, ErrUnknown) {
				t.Fatalf("%q: %v, %v", value, got, err)
			}
			return
		}
		if want := driverShows(value, s.Shown); !slices.Equal(got.Among, want) || got.Count != len(want) || len(want) == 0 {
			t.Fatalf("%q: chose %v, and CUDA shows %v", value, got, want)
		}
	})
}
