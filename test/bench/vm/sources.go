package main

import "github.com/divvy-gpu/divvy/test/bench/measurement"

// row is a figure that a test tells (package figure), with what the test does not decide.
type row struct {
	// id and word are those that the test tells; word is its case.
	id, word string
	unit     string
	goal     float64
	better   measurement.Direction
}

// source is tests that tell figures. What several of them count for one row is added.
type source struct {
	rows  []row
	tests []tests
}

// tests are some of one package.
type tests struct {
	folder, pattern string
	// module is true where the folder is a module of its own.
	module bool
	// shapes are those of the guests that the tests run in, one after the other; with none they run on this machine.
	shapes []string
	// with are files that the guest gets as well.
	with []string
	// settings are of the environment; of them a guest gets DIVVY_LONG alone.
	settings []string
}

// whole is the guest that has all.
var whole = []string{"whole"}

// sources have a line for each figure, in the order in which they are measured. All rows of one id are one's: a figure that is
// measured anew takes the place of all of them.
var sources = []source{
	{
		rows: []row{
			{id: "vm.preflight", word: "fault named first", unit: "hosts", goal: 15, better: measurement.Higher},
			{id: "vm.preflight", word: "false", unit: "hosts", goal: 0, better: measurement.Lower},
		},
		tests: []tests{
			{folder: "./internal/vm/vmtest", pattern: "TestModelledHosts"},
			{folder: "./test/vm/hosts", pattern: "TestHosts", shapes: []string{"whole", "iommu-none", "iommu-off", "no-remapper"}},
		},
	},
	{
		rows:  []row{{id: "vm.guest", unit: "forms", goal: 4, better: measurement.Higher}},
		tests: []tests{{folder: "./test/vm/suite", pattern: "TestVMSeesWhatItIsGiven", shapes: whole}},
	},
	{
		rows:  []row{{id: "kv.metadata", unit: "kinds of claims", goal: 6, better: measurement.Higher}},
		tests: []tests{{folder: "./internal/agent/dra", pattern: "TestMetadata"}},
	},
	{
		rows: []row{
			{id: "vm.stuck_s", word: "holder named", unit: "s", goal: 2, better: measurement.Lower},
			{id: "vm.stuck_s", word: "others", unit: "s", goal: 0.1, better: measurement.Lower},
			{id: "vm.stuck_s", word: "holder named by divvy vm claim", unit: "s", goal: 2, better: measurement.Lower},
		},
		tests: []tests{
			{folder: "./test/vm/binding", pattern: "TestHolderIsNamed", shapes: whole},
			{folder: "./test/vm/claims", pattern: "TestStuck", shapes: whole, with: []string{"build/vm/bin"}},
		},
	},
	{
		rows:  []row{{id: "vm.bind_s", unit: "s", goal: 2, better: measurement.Lower}},
		tests: []tests{{folder: "./test/vm/binding", pattern: "TestBindAndBack", shapes: whole, settings: []string{"DIVVY_LONG=vm"}}},
	},
	{
		rows:  []row{{id: "pair.switch", unit: "pairs", goal: 0, better: measurement.Lower}},
		tests: []tests{{folder: "./internal/agent/dra/pool", pattern: "TestPairSwitch", settings: []string{"DIVVY_LONG=pairs"}}},
	},
	{
		rows: []row{
			{id: "nic.exact", unit: "adapters", goal: 1, better: measurement.Lower},
			{id: "nic.quota", word: "refused", unit: "handles", goal: 48, better: measurement.Higher},
			{id: "nic.quota", word: "neighbours hurt", unit: "handles and objects", goal: 0, better: measurement.Lower},
			{id: "nic.quota", word: "passed on", unit: "handles and objects", goal: 0, better: measurement.Lower},
		},
		tests: []tests{{folder: "./test/vm/cards", pattern: "TestContainerOpensItsOwnAdapter|TestHandlesBeyondTheLimitAreRefused|TestPassedAdapterIsLimitedByThePod", shapes: whole, with: []string{"build/libexec/divvy/divvy-cover"}}},
	},
	{
		rows:  []row{{id: "nic.traffic", unit: "ways", goal: 2, better: measurement.Higher}},
		tests: []tests{{folder: "test/vm/cni", module: true, pattern: "TestTraffic", shapes: whole, with: []string{"build/vm/cni"}}},
	},
	{
		rows: []row{
			{id: "vgpu.random", word: "overlaps", unit: "vGPUs", goal: 0, better: measurement.Lower},
			{id: "vgpu.random", word: "cleared in use", unit: "vGPUs", goal: 0, better: measurement.Lower},
			{id: "vgpu.random", word: "foreign removed", unit: "vGPUs", goal: 0, better: measurement.Lower},
		},
		tests: []tests{{folder: "./internal/backend/vgpu", pattern: "TestRandom", shapes: whole, settings: []string{"DIVVY_LONG=vgpu"}}},
	},
	{
		rows: []row{
			{id: "vm.crash", word: "bind and undo", unit: "steps", goal: 0, better: measurement.Lower},
			{id: "vm.crash", word: "mdev", unit: "steps", goal: 0, better: measurement.Lower},
			{id: "vm.crash", word: "VF type", unit: "steps", goal: 0, better: measurement.Lower},
			{id: "vm.crash", word: "instance and VF", unit: "steps", goal: 0, better: measurement.Lower},
			{id: "vm.crash", word: "virtual functions", unit: "steps", goal: 0, better: measurement.Lower},
		},
		tests: []tests{
			{folder: "./test/vm/binding", pattern: "TestKilledAfterEveryStep", shapes: whole},
			{folder: "./internal/backend/vgpu", pattern: "TestCrash", shapes: whole},
		},
	},
}
