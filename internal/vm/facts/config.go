package facts

import "encoding/binary"

// Where capabilities lie in a function's configuration space, as the PCI Express Base Specification has them.
const (
	headerBytes     = 0x40
	configBytes     = 0x1000
	extendedStart   = 0x100
	statusOffset    = 0x06
	statusHasList   = 0x10
	firstCapability = 0x34
	capExpress      = 0x10
	expressBytes    = 0x14
	extendedACS     = 0x000d
	acsBytes        = 8
	acsCapability   = 4
	acsControl      = 6
	// acsApart are the ways to keep devices apart that count: source validation, redirection of requests and of completions, and
	// upstream forwarding.
	acsApart = 1<<0 | 1<<2 | 1<<3 | 1<<4
)

// portOf reads what a port keeps apart, from its configuration space. Only root may read beyond its first bytes. A bridge that is
// no port of PCI Express keeps nothing apart.
func portOf(config string) *Port {
	if len(config) < configBytes {
		return &Port{}
	}
	port := &Port{Readable: true}
	if at, found := extended([]byte(config), extendedACS); found && at+acsBytes <= len(config) {
		can := binary.LittleEndian.Uint16([]byte(config)[at+acsCapability:])
		does := binary.LittleEndian.Uint16([]byte(config)[at+acsControl:])
		port.HasACS = can&acsApart == acsApart
		port.Apart = does&acsApart == acsApart
	}
	return port
}

// extended finds an extended capability. A list that leads in a circle ends.
func extended(config []byte, id uint16) (at int, found bool) {
	for at, steps := extendedStart, 0; at >= extendedStart && at+4 <= len(config) && steps < configBytes/4; steps++ {
		header := binary.LittleEndian.Uint32(config[at:])
		if header == 0 || header == 0xffffffff {
			return 0, false
		}
		if uint16(header) == id {
			return at, true
		}
		at = int(header >> 20)
	}
	return 0, false
}

// keptConfig is a configuration space without what identifies the card or says more than is read here: its header, the heads of its
// capabilities, and those of PCI Express and of keeping apart.
func keptConfig(config []byte) []byte {
	kept := make([]byte, len(config))
	keep := func(at, count int) {
		if at >= 0 && at+count <= len(config) {
			copy(kept[at:at+count], config[at:at+count])
		}
	}
	keep(0, headerBytes)
	if len(config) < configBytes {
		return kept
	}
	if config[statusOffset]&statusHasList != 0 {
		at := int(config[firstCapability] &^ 3)
		for steps := 0; at >= headerBytes && steps < 48; steps++ {
			keep(at, 2)
			if config[at] == capExpress {
				keep(at, expressBytes)
			}
			at = int(config[at+1] &^ 3)
		}
	}
	for at, steps := extendedStart, 0; at >= extendedStart && at+4 <= len(config) && steps < configBytes/4; steps++ {
		header := binary.LittleEndian.Uint32(config[at:])
		if header == 0 || header == 0xffffffff {
			break
		}
		keep(at, 4)
		if uint16(header) == extendedACS {
			keep(at, acsBytes)
		}
		at = int(header >> 20)
	}
	return kept
}
