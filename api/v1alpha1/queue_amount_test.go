package v1alpha1

import (
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"
)

// amountOf reads one from JSON.
func amountOf(t *testing.T, text string) Amount {
	t.Helper()
	var a Amount
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return a
}

func TestAmountsOfQueues(t *testing.T) {
	for _, c := range []struct {
		unit      QueueUnit
		text      string
		want      int64
		canonical string
	}{
		{UnitGPUs, `4`, 4000, "4"}, {UnitGPUs, `"4"`, 4000, "4"}, {UnitGPUs, `"2.5"`, 2500, "2.5"}, {UnitGPUs, `"500m"`, 500, "0.5"},
		{UnitGPUs, `"0.001"`, 1, "0.001"}, {UnitGPUs, `"4.000000"`, 4000, "4"}, {UnitGPUs, `0`, 0, "0"}, {UnitGPUs, `"1k"`, 1_000_000, "1000"},
		{UnitGPUs, `1099511627`, 1099511627000, "1099511627"},
		{UnitMemory, `"80Gi"`, 80 << 10, "80Gi"}, {UnitMemory, `"1.5Gi"`, 1536, "1536Mi"}, {UnitMemory, `85899345920`, 80 << 10, "80Gi"},
		{UnitMemory, `"1Ei"`, 1 << 40, "1048576Ti"}, {UnitMemory, `"131072k"`, 125, "125Mi"}, {UnitMemory, `0`, 0, "0"},
		{UnitCores, `30`, 30, "30"}, {UnitCores, `"200"`, 200, "200"},
		{UnitGPUs, `null`, 0, "0"},
	} {
		a := amountOf(t, c.text)
		n, err := a.In(c.unit)
		if n != c.want || err != nil || c.unit.Format(n) != c.canonical {
			t.Errorf("%s %s: %d, %s, %v", c.text, c.unit, n, c.unit.Format(n), err)
		}
		if written, err := json.Marshal(a); string(written) != c.text || err != nil {
			t.Errorf("%s is written as %s, %v", c.text, written, err)
		}
		if again, err := AmountOf(n, c.unit).In(c.unit); again != n || err != nil {
			t.Errorf("%s is %d, and %d when read again: %v", c.text, n, again, err)
		}
	}
}

func TestBadAmountsOfQueues(t *testing.T) {
	for _, c := range []struct {
		unit       QueueUnit
		text, want string
	}{
		{UnitGPUs, `-4`, "negative"}, {UnitGPUs, `"-500m"`, "negative"}, {UnitCores, `"-1"`, "negative"}, {UnitMemory, `"-1Gi"`, "negative"},
		{UnitGPUs, `2.5`, "in quotes"}, {UnitGPUs, `1e3`, "in quotes"}, {UnitCores, `3e1`, "in quotes"},
		{UnitGPUs, `"0.0005"`, "give 0 or 0.001"}, {UnitGPUs, `"2.5005"`, "give 2.5 or 2.501"}, {UnitGPUs, `"0.999999m"`, "give 0 or 0.001"},
		{UnitGPUs, `"0.0009999999999"`, "such as 4"}, {UnitGPUs, `"500u"`, "such as 4"}, {UnitGPUs, `"1e3"`, "such as 4"}, {UnitGPUs, `""`, "such as 4"},
		{UnitGPUs, `" 4"`, "such as 4"}, {UnitGPUs, `"+4"`, "such as 4"}, {UnitGPUs, `".5"`, "such as 4"}, {UnitGPUs, `"4."`, "such as 4"}, {UnitGPUs, `"50%"`, "such as 4"},
		{UnitGPUs, `"４"`, "such as 4"}, {UnitGPUs, `"NaN"`, "such as 4"}, {UnitGPUs, `"0x4"`, "such as 4"},
		{UnitGPUs, `1099511628`, "give at most 1099511627.776"}, {UnitGPUs, `99999999999999999999999`, "such as 4"}, {UnitGPUs, `"9999999999999999999E"`, "at most"},
		{UnitMemory, `80`, "give 0Mi or 1Mi"}, {UnitMemory, `"80G"`, "give 76293Mi or 76294Mi"}, {UnitMemory, `"500m"`, "give 0Mi or 1Mi"}, {UnitMemory, `"80GB"`, "such as 80Gi"},
		{UnitMemory, `"2Ei"`, "give at most 1048576Ti"}, {UnitMemory, `"9223372036854775807E"`, "at most"},
		{UnitCores, `"30%"`, "such as 30"}, {UnitCores, `"0.5"`, "such as 30"}, {UnitCores, `"1k"`, "such as 30"}, {UnitCores, `1099511627777`, "at most 1099511627776"},
		{UnitCores, `9999999999999999999`, "at most"},
		{UnitGPUs, `"` + strings.Repeat("0", 1<<20) + `4"`, "such as 4"},
	} {
		a := amountOf(t, c.text)
		n, err := a.In(c.unit)
		if n != 0 || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40s %s: %d, %v, want %q", c.text, c.unit, n, err, c.want)
		}
		q := QueueSpec{Resources: []QueueShare{{Unit: c.unit, LendingLimit: a}}}
		if err := q.Validate("q"); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "queue q: resource 0: lendingLimit "+a.String()) || len(err.Error()) > 400 {
			t.Errorf("%.40s: %v", c.text, err)
		}
	}
	for _, text := range []string{`true`, `{}`, `[4]`, `"4`} {
		if err := json.Unmarshal([]byte(text), &Amount{}); err == nil {
			t.Errorf("%s is read", text)
		}
	}
}

// A standing is written in the form in which amounts are read.
func TestStandingAsText(t *testing.T) {
	all := []QueueUse{
		{Unit: UnitGPUs, Guaranteed: 4000, Entitled: 2500, Used: 1, Demand: 1_000_000},
		{Model: "H100", Unit: UnitMemory, Guaranteed: 80 << 10, Lent: 1536, Borrowed: 1},
		{Unit: UnitCores, Used: 30},
	}
	text, err := json.Marshal(all)
	want := `[{"unit":"gpus","guaranteed":"4","entitled":"2.5","used":"0.001","lent":"0","borrowed":"0","demand":"1000"},` +
		`{"model":"H100","unit":"memory","guaranteed":"80Gi","entitled":"0","used":"0","lent":"1536Mi","borrowed":"1Mi","demand":"0"},` +
		`{"unit":"cores","guaranteed":"0","entitled":"0","used":"30","lent":"0","borrowed":"0","demand":"0"}]`
	if string(text) != want || err != nil {
		t.Errorf("%s, %v", text, err)
	}
	var again []QueueUse
	if err := json.Unmarshal(text, &again); err != nil || len(again) != 3 || again[0] != all[0] || again[1] != all[1] || again[2] != all[2] {
		t.Errorf("%+v, %v", again, err)
	}
	if err := json.Unmarshal([]byte(strings.Replace(want, "80Gi", "80G", 1)), &again); err == nil || !strings.Contains(err.Error(), "read guaranteed 80G") {
		t.Error(err)
	}
}

func TestWeigh(t *testing.T) {
	for unit, one := range map[QueueUnit]string{UnitGPUs: "1", UnitCores: "1", UnitMemory: "1Gi"} {
		if n, err := Written(one).In(unit); n != unit.Weigh(1) || err != nil {
			t.Errorf("%s weighs %d, and a weight of 1 is %d: %v", one, n, unit.Weigh(1), err)
		}
	}
}

// What is read is exactly what was written, by other arithmetic than that of quantities.
func FuzzAmount(f *testing.F) {
	for _, s := range []string{`4`, `"2.5"`, `"500m"`, `"80Gi"`, `"0.000001Ei"`, `-1`, `"1E"`, `"9223372036854775807"`, `1e400`, `""`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var a Amount
		if json.Unmarshal([]byte(text), &a) != nil {
			return
		}
		_, _ = json.Marshal(a)
		for unit, steps := range map[QueueUnit]*big.Rat{UnitGPUs: big.NewRat(1000, 1), UnitCores: big.NewRat(1, 1), UnitMemory: big.NewRat(1, 1<<20)} {
			n, err := a.In(unit)
			if err != nil || a.IsZero() {
				continue
			}
			if n < 0 || n > MaxAmount {
				t.Fatalf("%s is %d", text, n)
			}
			digits := strings.TrimRight(a.text, "mkMGTPEi")
			exact, ok := new(big.Rat).SetString(digits)
			if !ok {
				t.Fatalf("%s is read, and %s is no number", text, digits)
			}
			suffixes := map[string]*big.Rat{
				"": big.NewRat(1, 1), "m": big.NewRat(1, 1000), "k": big.NewRat(1e3, 1), "M": big.NewRat(1e6, 1), "G": big.NewRat(1e9, 1),
				"T": big.NewRat(1e12, 1), "P": big.NewRat(1e15, 1), "E": big.NewRat(1e18, 1), "Ki": big.NewRat(1<<10, 1), "Mi": big.NewRat(1<<20, 1),
				"Gi": big.NewRat(1<<30, 1), "Ti": big.NewRat(1<<40, 1), "Pi": big.NewRat(1<<50, 1), "Ei": big.NewRat(1<<60, 1),
			}
			exact.Mul(exact, suffixes[a.text[len(digits):]]).Mul(exact, steps)
			if exact.Cmp(new(big.Rat).SetInt64(n)) != 0 {
				t.Fatalf("%s in %s is %d, exactly %s", text, unit, n, exact)
			}
			if again, err := Written(unit.Format(n)).In(unit); again != n || err != nil {
				t.Fatalf("%s is written as %s and read as %d: %v", text, unit.Format(n), again, err)
			}
		}
	})
}
