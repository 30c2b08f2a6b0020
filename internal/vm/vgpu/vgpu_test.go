package vgpu

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/divvy-gpu/divvy/internal/pci"
	"github.com/divvy-gpu/divvy/internal/sysfs/sysfstest"
)

const (
	gpuFolder = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
	vfFolder  = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00."
	one       = "11111111-2222-3333-4444-000000000001"
)

// tree is a file system by paths from the root. Contents that begin with "->" are links; "-" takes a file away.
func tree(files ...map[string]string) fstest.MapFS {
	all := map[string]string{
		"sys/bus/pci/devices/0000:01:00.0": "->../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0",
		gpuFolder + "/driver":              "->../../../../bus/pci/drivers/nvidia",
		gpuFolder + "/sriov_totalvfs":      "16\n",
	}
	for _, more := range files {
		for name, content := range more {
			all[name] = content
		}
	}
	return sysfstest.Tree(all)
}

// mediated is a type of mediated devices on the GPU itself.
func mediated(id, name, free string) map[string]string {
	at := gpuFolder + "/mdev_supported_types/" + id
	return map[string]string{
		at + "/name": name, at + "/available_instances": free,
		at + "/description": "num_heads=1, frl_config=60, framebuffer=10240M, max_resolution=4096x2160, max_instance=4\n",
	}
}

// vendor is the virtual function of a number from 1 on.
func vendor(number, current, creatable string) map[string]string {
	at := vfFolder + number
	return map[string]string{
		"sys/bus/pci/devices/0000:01:00." + number: "->../../../devices/pci0000:00/0000:00:01.0/0000:01:00." + number,
		gpuFolder + "/virtfn" + number:             "->../0000:01:00." + number,
		at + "/nvidia/current_vgpu_type":           current, at + "/nvidia/creatable_vgpu_types": creatable,
		at + "/nvidia/gpu_instance_id": "4294967295\n",
		at + "/iommu_group":            "->../../../../kernel/iommu_groups/4" + number,
		at + "/driver":                 "->../../../../bus/pci/drivers/nvidia",
	}
}

const creatable = "ID    : vGPU Name\n471   : NVIDIA A100-10C\n472   : NVIDIA A100-20C\n"

func read(t *testing.T, files ...map[string]string) *GPU {
	t.Helper()
	gpu, err := Read(tree(files...), pci.Address{Bus: 1})
	if err != nil {
		t.Fatal(err)
	}
	return gpu
}

func TestMediated(t *testing.T) {
	types := gpuFolder + "/mdev_supported_types/"
	gpu := read(t, mediated("nvidia-471", "NVIDIA A100-10C\n", "3\n"), mediated("nvidia-1071", "GRID A100-10C\n", "0\n"), map[string]string{
		types + "nvidia-471/devices/" + one: "->../../../" + one,
	})
	if len(gpu.Functions) != 1 || gpu.Driver != "nvidia" || gpu.FunctionsTotal != 16 {
		t.Fatalf("%+v", gpu)
	}
	f := gpu.Functions[0]
	if want := []Made{{one, "nvidia-471"}}; f.Interface != Mediated || !reflect.DeepEqual(f.Made, want) {
		t.Errorf("%+v", f)
	}
	want := []Choice{
		{ID: "nvidia-471", Name: "NVIDIA A100-10C", Free: 3, Most: 4, MiB: 10240, Interface: Mediated},
		{ID: "nvidia-1071", Name: "GRID A100-10C", Most: 4, MiB: 10240, Interface: Mediated},
	}
	if got := gpu.Choices(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestVendor(t *testing.T) {
	gpu := read(t, vendor("1", "471\n", "ID    : vGPU Name\n"), vendor("3", "0\n", creatable), vendor("2", "0\n", "ID    : vGPU Name\n471   : NVIDIA A100-10C\n"))
	if len(gpu.Functions) != 3 || gpu.Functions[0].Current != "471" || gpu.Functions[0].Group != 41 || gpu.Functions[2].Address.Function != 3 {
		t.Fatalf("%+v", gpu.Functions)
	}
	if f := gpu.Functions[1]; f.Interface != Vendor || f.Current != "" || !f.HasInstance || f.Instance != "4294967295" || f.Driver != "nvidia" {
		t.Errorf("%+v", f)
	}
	want := []Choice{{ID: "471", Name: "NVIDIA A100-10C", Free: 2, Interface: Vendor}, {ID: "472", Name: "NVIDIA A100-20C", Free: 1, Interface: Vendor}}
	if got := gpu.Choices(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// No more are free than the GPU can have in all, even where each function could have one.
func TestFreeIsBounded(t *testing.T) {
	at := func(vf string) map[string]string {
		types := vfFolder + vf + "/mdev_supported_types/nvidia-471/"
		return map[string]string{
			types + "name": "A\n", types + "available_instances": "1\n", types + "description": "max_instance=2\n",
			vfFolder + vf + "/nvidia/current_vgpu_type": "-",
		}
	}
	files := []map[string]string{vendor("1", "", ""), vendor("2", "", ""), vendor("3", "", ""), at("1"), at("2"), at("3")}
	if got := read(t, files...).Choices(); len(got) != 1 || got[0].Free != 2 {
		t.Errorf("%+v, want 2 free", got)
	}
	files = append(files, map[string]string{vfFolder + "1/mdev_supported_types/nvidia-471/devices/" + one: "->x", vfFolder + "1/mdev_supported_types/nvidia-471/available_instances": "0\n"})
	if got := read(t, files...).Choices(); len(got) != 1 || got[0].Free != 1 {
		t.Errorf("%+v, want 1 free", got)
	}
}

func TestResolve(t *testing.T) {
	gpu := read(t, mediated("nvidia-471", "NVIDIA A100-10C\n", "3\n"), mediated("nvidia-1071", "GRID A100-10C\n", "0\n"), mediated("nvidia-5", "a b\nc", "1"))
	for wanted, want := range map[string]string{
		"nvidia-471": "nvidia-471", "1071": "nvidia-1071", "grid a100-10c": "nvidia-1071", "NVIDIA A100-10C": "nvidia-471", "a b\nc": "nvidia-5",
	} {
		if got, err := gpu.Resolve(wanted); err != nil || got.ID != want {
			t.Errorf("%q: %v, %v; want %s", wanted, got, err, want)
		}
	}
	if _, err := gpu.Resolve("A100-10C"); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("two of a name: %v", err)
	}
	for _, wanted := range []string{"", "A100-99C", "nvidia", "-"} {
		_, err := gpu.Resolve(wanted)
		if !errors.Is(err, ErrType) {
			t.Errorf("%q: %v, want ErrType", wanted, err)
		} else if strings.ContainsAny(err.Error(), "\n\x1b") || !strings.Contains(err.Error(), `nvidia-471 ("NVIDIA A100-10C", 3 left)`) {
			t.Errorf("%q: %q", wanted, err)
		}
	}
}

// Each cause for which there is no vGPU is told apart, with what helps.
func TestWithoutTheType(t *testing.T) {
	bare := func(number string) map[string]string {
		return map[string]string{
			"sys/bus/pci/devices/0000:01:00." + number: "->../../../devices/pci0000:00/0000:00:01.0/0000:01:00." + number,
			gpuFolder + "/virtfn" + number:             "->../0000:01:00." + number, vfFolder + number + "/class": "0x030200\n",
		}
	}
	for name, c := range map[string]struct {
		files []map[string]string
		why   error
		says  string
	}{
		"no driver":                  {[]map[string]string{{gpuFolder + "/driver": "-"}}, ErrDriver, "0000:01:00.0: no driver makes vGPUs of it: it has no driver: NVIDIA's host driver for vGPU, which comes"},
		"another driver":             {[]map[string]string{{gpuFolder + "/driver": "->../../../../bus/pci/drivers/vfio-pci"}}, ErrDriver, "driver vfio-pci has it: NVIDIA's host driver"},
		"a driver that makes none":   {[]map[string]string{{gpuFolder + "/sriov_totalvfs": "0\n"}}, ErrDriver, "its driver nvidia is not the host driver for vGPU, or the GPU can have none"},
		"no functions":               {nil, ErrFunctions, "0000:01:00.0: it has no virtual functions yet, of which its driver makes vGPUs: `divvy vm functions 0000:01:00.0 --count all` enables them"},
		"functions that offer none":  {[]map[string]string{{gpuFolder + "/sriov_numvfs": "1\n"}, bare("1")}, ErrDriver, "of its 1 virtual functions none offers any: they need driver nvidia too"},
		"unknown":                    {[]map[string]string{vendor("1", "0\n", creatable)}, ErrType, `no such vGPU type: "473": the GPU offers 471 ("NVIDIA A100-10C", 1 left), 472 ("NVIDIA A100-20C", 1 left)`},
		"unknown beside others":      {[]map[string]string{vendor("1", "0\n", creatable), vendor("2", "471\n", "ID    : vGPU Name\n")}, ErrType, "; with no vGPUs on it the GPU may offer more"},
		"full":                       {[]map[string]string{vendor("1", "471\n", "ID    : vGPU Name\n"), vendor("2", "471\n", "ID    : vGPU Name\n")}, ErrFull, `no vGPU of the type is left: "473": the GPU is full, vGPUs on it: 2: release one first: ` + "`divvy vm ls` lists"},
		"none of the type is left":   {[]map[string]string{vendor("1", "473\n", ""), vendor("2", "0\n", "ID    : vGPU Name\n471   : NVIDIA A100-10C\n")}, ErrFull, `"473": the GPU offers 471 ("NVIDIA A100-10C", 1 left); or release one first`},
		"no type at all by mdev yet": {[]map[string]string{{gpuFolder + "/mdev_supported_types/.keep": ""}}, ErrType, "the GPU offers none now"},
	} {
		_, err := read(t, c.files...).Resolve("473")
		if !errors.Is(err, c.why) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s", name, err, c.says)
		}
	}
}

func TestProfile(t *testing.T) {
	for name, want := range map[string]string{
		"NVIDIA A100-1-5C": "1g.5gb", "GRID A100D-3-40c": "3g.40gb", "NVIDIA H100-1-10CME": "1g.10gb+me", "NVIDIA A100-10C": "", "NVIDIA A100-4-20Q": "",
		"": "", "A100-9-5C": "", "A100-1-0C": "", "NVIDIA RTX DC-1-24QGFX": "",
	} {
		if got := Profile(name); got != want {
			t.Errorf("%q needs %q, want %q", name, got, want)
		}
	}
}

// What the driver does not write is left out and told, and nothing else changes.
func TestHostile(t *testing.T) {
	types := gpuFolder + "/mdev_supported_types/"
	long := strings.Repeat("é", 4000)
	for name, test := range map[string]struct {
		files   map[string]string
		choices int
		unread  []string
	}{
		"a type with a newline":   {mediated("a\nb", "x", "1"), 1, []string{strings.TrimPrefix(types, "sys/") + "a\nb"}},
		"a type with a space":     {mediated("nvidia 7", "x", "1"), 1, []string{strings.TrimPrefix(types, "sys/") + "nvidia 7"}},
		"a negative count":        {mediated("nvidia-7", "x", "-1\n"), 2, nil},
		"a huge count":            {mediated("nvidia-7", "x", "99999999999999999999\n"), 2, nil},
		"a device that is none":   {map[string]string{types + "nvidia-471/devices/a b": "->x"}, 1, []string{strings.TrimPrefix(types, "sys/") + "nvidia-471/devices/a b"}},
		"a function that is none": {map[string]string{gpuFolder + "/virtfn1": "->../a\nb", gpuFolder + "/virtfnx": "->../0000:01:00.1"}, 1, []string{strings.TrimPrefix(gpuFolder, "sys/") + "/virtfn1", strings.TrimPrefix(gpuFolder, "sys/") + "/virtfnx"}},
		"a function that is gone": {map[string]string{gpuFolder + "/virtfn1": "->../0000:01:00.1"}, 1, nil},
		"a link elsewhere":        {map[string]string{gpuFolder + "/virtfn1": "->../0000:01:00.1", "sys/bus/pci/devices/0000:01:00.1": "->../../../../etc"}, 1, []string{"bus/pci/devices/0000:01:00.1"}},
		"a current type of text":  {vendor("1", "471; reboot\n", ""), 1, []string{strings.TrimPrefix(vfFolder, "sys/") + "1/nvidia/current_vgpu_type"}},
		"a long name":             {mediated("nvidia-7", long, "1"), 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			gpu := read(t, mediated("nvidia-471", "NVIDIA A100-10C\n", "3\n"), test.files)
			choices := gpu.Choices()
			if len(choices) != test.choices || !reflect.DeepEqual(gpu.Unread, test.unread) {
				t.Errorf("%d choices, unread %q", len(choices), gpu.Unread)
			}
			if last := choices[len(choices)-1]; last.ID != "nvidia-471" || last.Free != 3 {
				t.Errorf("the other type is %+v", last)
			}
			if at := choices[0]; len(at.Name) > longest || at.Free < 0 {
				t.Errorf("%+v", at)
			}
		})
	}
}

func TestVanished(t *testing.T) {
	if _, err := Read(tree(), pci.Address{Bus: 9}); !errors.Is(err, ErrVanished) || err.Error() != "the device is not there: no PCI device has address 0000:09:00.0 (`lspci -D` lists them)" {
		t.Errorf("%v, want ErrVanished with the address", err)
	}
}

// late is a tree of which one file is given up.
type late struct {
	fstest.MapFS
	name string
}

func (l late) Open(name string) (fs.File, error) {
	if name == l.name {
		return nil, &fs.PathError{Op: "read", Path: name, Err: os.ErrDeadlineExceeded}
	}
	return l.MapFS.Open(name)
}

func (l late) ReadFile(name string) ([]byte, error) {
	if _, err := l.Open(name); err != nil {
		return nil, err
	}
	return l.MapFS.ReadFile(name)
}

func (l late) Sub(dir string) (fs.FS, error) { return sub{l, dir}, nil }

// sub is a folder of it.
type sub struct {
	late
	dir string
}

func (s sub) Open(name string) (fs.File, error)      { return s.late.Open(path.Join(s.dir, name)) }
func (s sub) ReadFile(name string) ([]byte, error)   { return s.late.ReadFile(path.Join(s.dir, name)) }
func (s sub) ReadLink(name string) (string, error)   { return s.MapFS.ReadLink(path.Join(s.dir, name)) }
func (s sub) Lstat(name string) (fs.FileInfo, error) { return s.MapFS.Lstat(path.Join(s.dir, name)) }
func (s sub) ReadDir(name string) ([]fs.DirEntry, error) {
	return s.MapFS.ReadDir(path.Join(s.dir, name))
}

// A count that the kernel does not tell now is no count of 0.
func TestLate(t *testing.T) {
	files := tree(vendor("1", "0\n", creatable))
	if _, err := Read(late{files, vfFolder + "1/nvidia/creatable_vgpu_types"}, pci.Address{Bus: 1}); !errors.Is(err, ErrLate) {
		t.Errorf("%v, want ErrLate", err)
	}
}

// Whatever stands in the files: numbers are numbers, names are bounded, and no type is there twice.
func FuzzCreatable(f *testing.F) {
	for _, seed := range []string{creatable, "", "ID : vGPU Name\r\n", "1:\n1:\n", "-1 : x\n0 : y\n01 : z\n", "7 : a:b\x00\xff\n", strings.Repeat("7", 40) + ":x\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		seen := map[string]bool{}
		for _, kind := range Creatable(text) {
			if !isNumber(kind.ID) || len(kind.Name) > longest || seen[kind.ID] || strings.TrimSpace(kind.Name) != kind.Name {
				t.Errorf("%+v from %q", kind, text)
			}
			seen[kind.ID] = true
		}
	})
}

// A tree of any content is read without a fault, and what is offered can be found again by its ID.
func FuzzRead(f *testing.F) {
	f.Add("nvidia-471", "NVIDIA A100-10C\n", "3\n", "max_instance=4", one, "471\n", creatable)
	f.Add("a\nb", "\x1b[2J", "-1", "max_instance=-4,framebuffer=xM", "..", "x", "\n:\n:")
	f.Fuzz(func(t *testing.T, id, name, free, description, uuid, current, creatable string) {
		at := gpuFolder + "/mdev_supported_types/" + id
		files := map[string]string{}
		for file, content := range map[string]string{"name": name, "available_instances": free, "description": description, "devices/" + uuid: "->x"} {
			if path := at + "/" + file; fs.ValidPath(path) && !strings.HasPrefix(content, "-") {
				files[path] = content
			}
		}
		more := vendor("1", current, creatable)
		gpu, err := Read(tree(more, files), pci.Address{Bus: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range gpu.Choices() {
			if o.Free < 0 || len(o.Name) > longest {
				t.Errorf("%+v", o)
			}
			if found, err := gpu.Resolve(o.ID); err != nil || found.ID != o.ID {
				t.Errorf("%q is found as %q, %v", o.ID, found.ID, err)
			}
		}
		for _, function := range gpu.Functions {
			for _, m := range function.Made {
				if !ValidUUID(m.UUID) {
					t.Errorf("%q", m)
				}
			}
		}
	})
}
