package rdma

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// told is what was chosen, and what was left with the reason.
func told(cards []Card, left []Left) string {
	var words []string
	for _, c := range cards {
		words = append(words, strings.TrimSuffix(fmt.Sprintf("%s:%d:%s", c.Name, c.Rail, c.Fault), ":"))
	}
	for _, l := range left {
		words = append(words, fmt.Sprintf("-%q: %s", l.Name, l.Why))
	}
	return strings.Join(words, "; ")
}

func TestChoose(t *testing.T) {
	const soft = "sys/devices/virtual/infiniband/rxe0"
	loose := map[string]string{"sys/class/infiniband/rxe0": "->../../devices/virtual/infiniband/rxe0", soft + "/parent": "veth0\n", soft + "/ports/1/state": "4: ACTIVE\n",
		"sys/class/infiniband_verbs/uverbs7/ibdev": "rxe0\n", "sys/class/infiniband_verbs/uverbs7/dev": "231:199\n"}
	odd := map[string]string{"sys/class/infiniband/mlx5_0": "-", "sys/class/infiniband/a b\nc": "->../../" + strings.TrimPrefix(cardAt, "sys/") + "/infiniband/a b\nc",
		cardAt + "/infiniband/a b\nc/ports/1/state": "4: ACTIVE\n"}
	const (
		far   = "no GPU is behind its switch, as behind that of other cards: name the adapter to give it to containers too"
		route = "\t00000000\t0102030A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
		by    = ": name the adapter to give it to containers all the same"
	)
	// A card of two ports, whose adapter is on the first one while they are bonded. The second one's virtual function has its own.
	bond := map[string]string{
		"sys/class/infiniband/mlx5_1": "-", "sys/class/infiniband/mlx5_2": "-", "sys/class/infiniband/mlx5_0": "-",
		"proc/1/net/route": "vlan7" + route, "sys/class/net/vlan7": "->../../devices/virtual/net/vlan7", "sys/devices/virtual/net/vlan7/lower_bond0": "->../bond0",
		"sys/class/net/bond0": "->../../devices/virtual/net/bond0",
	}
	for number, at := range []string{"0000:91:00.0", "0000:91:00.1", "0000:91:01.1"} {
		folder := "devices/pci0000:90/0000:90:01.0/" + at
		bond["sys/bus/pci/devices/"+at] = "->../../../" + folder
		for file, content := range map[string]string{"class": "0x020000\n", "vendor": "0x15b3\n", "device": "0x101b\n"} {
			bond["sys/"+folder+"/"+file] = content
		}
		netdev, adapter := fmt.Sprint("ens", number), []string{"mlx5_bond_0", "", "mlx5_4"}[number]
		bond["sys/class/net/"+netdev], bond["sys/"+folder+"/net/"+netdev+"/address"] = "->../../"+folder+"/net/"+netdev, "0\n"
		if number < 2 {
			bond["sys/devices/virtual/net/bond0/lower_"+netdev] = "->../../../" + folder + "/net/" + netdev
		} else {
			bond["sys/"+folder+"/physfn"] = "->../0000:91:00.1"
		}
		if adapter != "" {
			bond["sys/class/infiniband/"+adapter] = "->../../" + folder + "/infiniband/" + adapter
			bond["sys/"+folder+"/infiniband/"+adapter+"/ports/1/state"] = "4: ACTIVE\n"
			verbs := fmt.Sprintf("sys/class/infiniband_verbs/uverbs%d/", number)
			bond[verbs+"ibdev"], bond[verbs+"dev"] = adapter+"\n", fmt.Sprintf("231:%d\n", 192+number)
		}
	}
	ofFunction := maps.Clone(bond)
	ofFunction["proc/1/net/route"] = "ens2" + route
	for name, test := range map[string]struct {
		files  map[string]string
		choice Choice
		noGPUs bool
		want   string
	}{
		"off":                           {nil, Choice{Off: true}, false, ""},
		"the GPUs' cards":               {nil, Choice{}, false, `mlx5_0:0; -"mlx5_1": ` + far + `; -"mlx5_2": ` + far},
		"all where no GPU is near":      {nil, Choice{}, true, `mlx5_0:0; mlx5_1:1; mlx5_2:1:port-down`},
		"by adapter":                    {nil, Choice{Names: []string{"mlx5_1", "mlx5_0"}}, false, `mlx5_1:0; mlx5_2:0:port-down; mlx5_0:1`},
		"by network device and address": {nil, Choice{Names: []string{"ens1", "0000:81:00.1", "none"}}, false, `mlx5_0:0; mlx5_2:1:port-down; -"none": this host has no RDMA adapter, and no network device or PCI address of one, of that name`},
		"one by two names":              {nil, Choice{Names: []string{"mlx5_0", "ens1"}}, false, `mlx5_0:0`},
		"the default route's": {map[string]string{"proc/1/net/route": "ens1\t00000000\t0102030A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"}, Choice{}, true,
			`mlx5_1:0; mlx5_2:0:port-down; -"mlx5_0": the default route goes through ens1` + by},
		"the default route's, named": {map[string]string{"proc/1/net/route": "ens1\t00000000\t0102030A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"}, Choice{Names: []string{"mlx5_0"}}, true,
			`mlx5_0:0`},
		"functions of the default route's card": {map[string]string{
			"sys/class/net/ib0": "->../../" + strings.TrimPrefix(aloneAt, "sys/") + "/net/ib0", aloneAt + "/net/ib0/address": "0\n",
			"proc/1/net/route": "ib0\t00000000\t0102030A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n",
		}, Choice{}, true, `mlx5_0:0; -"mlx5_1": the default route goes through ib0` + by + `; -"mlx5_2": the default route goes through ib0` + by},
		"a disk in use on it": {map[string]string{
			"sys/class/block/nvme9n1": "->../../" + strings.TrimPrefix(cardAt, "sys/") + "/nvme/nvme9/nvme9n1", cardAt + "/nvme/nvme9/nvme9n1/dev": "259:9\n",
			"proc/1/mountinfo": "36 1 259:9 / /scratch rw - ext4 /dev/nvme9n1 rw\n",
		}, Choice{}, true, `mlx5_1:0; mlx5_2:0:port-down; -"mlx5_0": the disk nvme9n1 is in use on it` + by},
		"below a VLAN and a bond":    {bond, Choice{}, true, `-"mlx5_bond_0": the default route goes through vlan7` + by + `; -"mlx5_4": the default route goes through vlan7` + by},
		"below a bond, named":        {bond, Choice{Names: []string{"mlx5_4"}}, true, `mlx5_4:0`},
		"through a function":         {ofFunction, Choice{}, true, `mlx5_bond_0:0; -"mlx5_4": the default route goes through ens2` + by},
		"limits that nobody knows":   {map[string]string{"sys/fs/cgroup/cgroup.controllers": "-"}, Choice{}, true, `mlx5_0:0:limits-unknown; mlx5_1:1:limits-unknown; mlx5_2:1:port-down`},
		"no port":                    {map[string]string{cardAt + "/infiniband/mlx5_0/ports/1/state": "-", cardAt + "/infiniband/mlx5_0/ports/1/link_layer": "-", cardAt + "/infiniband/mlx5_0/ports/1/rate": "-", cardAt + "/infiniband/mlx5_0/ports/1/gids/0": "-", cardAt + "/infiniband/mlx5_0/ports/1/gids/1": "-", cardAt + "/infiniband/mlx5_0/ports/1/gids/2": "-"}, Choice{Names: []string{"mlx5_0"}}, false, `-"mlx5_0": it has no port`},
		"no node":                    {map[string]string{"sys/class/infiniband_verbs/uverbs0/dev": "-"}, Choice{Names: []string{"mlx5_0"}}, false, `-"mlx5_0": it has no device node uverbs: load the module ib_uverbs`},
		"network device elsewhere":   {map[string]string{cardAt + "/net/ens1/address": "-"}, Choice{Names: []string{"mlx5_0"}}, false, `mlx5_0:0:netdev-away`},
		"down":                       {map[string]string{cardAt + "/infiniband/mlx5_0/ports/1/state": "1: DOWN\n"}, Choice{Names: []string{"mlx5_0"}}, false, `mlx5_0:0:port-down`},
		"a name of several lines":    {odd, Choice{Names: []string{"0000:14:00.0"}}, false, `-"a b\nc": its name cannot be written in the kernel's limits: rename it, such as by rdma dev set NAME name mlx5_0`},
		"soft on no card":            {loose, Choice{}, true, `mlx5_0:0; mlx5_1:1; mlx5_2:1:port-down; -"rxe0": it is on no PCI device: name the adapter to give it to containers`},
		"soft on no card, named":     {loose, Choice{Names: []string{"veth0"}}, true, `rxe0:0`},
		"two adapters of a function": {map[string]string{"sys/class/infiniband/twin": "->../../" + strings.TrimPrefix(cardAt, "sys/") + "/infiniband/twin", cardAt + "/infiniband/twin/ports/1/state": "4: ACTIVE\n", "sys/class/infiniband_verbs/uverbs8/ibdev": "twin\n", "sys/class/infiniband_verbs/uverbs8/dev": "231:200\n"}, Choice{}, false, `mlx5_0:0; -"mlx5_1": ` + far + `; -"mlx5_2": ` + far + `; -"twin": it has the place of the adapter mlx5_0`},
	} {
		t.Run(name, func(t *testing.T) {
			near := gpus(t)
			if test.noGPUs {
				near = nil
			}
			if got := told(read(t, test.files).Choose(test.choice, near)); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// A card that goes down keeps its rail and that of the others.
func TestRailsStay(t *testing.T) {
	before, _ := read(t, nil).Choose(Choice{}, nil)
	after, _ := read(t, map[string]string{cardAt + "/infiniband/mlx5_0/ports/1/state": "1: DOWN\n", "sys/class/infiniband_verbs/uverbs0/dev": "-"}).Choose(Choice{}, nil)
	for _, c := range after {
		i := slices.IndexFunc(before, func(b Card) bool { return b.Name == c.Name })
		if i < 0 || before[i].Rail != c.Rail {
			t.Errorf("%s has rail %d now", c.Name, c.Rail)
		}
	}
	if len(after) != len(before)-1 {
		t.Errorf("%d cards after %d", len(after), len(before))
	}
}

func FuzzPlain(f *testing.F) {
	for _, seed := range []string{"mlx5_0", "rocep1s0f0", "a b", "a\nb", "", "..", "-x", strings.Repeat("x", 64), "ü", "x%d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if Plain(name) && (strings.ContainsAny(name, " \t\r\n/=%\x00\"'`$") || len(name) > 63 || len(strings.Fields(name)) != 1) {
			t.Errorf("%q is plain", name)
		}
		a := Adapter{Name: name, Soft: true}
		if key := a.Key(); strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("%q has the key %q", name, key)
		}
	})
}
