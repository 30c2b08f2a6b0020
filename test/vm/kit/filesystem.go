package kit

import "encoding/binary"

// FileSystem returns what is on the guest's disk: an empty file system of the kernel's kind romfs.
func FileSystem() []byte {
	const (
		size = 1 << 20
		// told is how much the file system says that it has, and summed how much of it a checksum covers.
		told, summed = 1024, 512
		root         = 32
		folder       = 1 | 8 // a folder that may be entered
	)
	image := make([]byte, size)
	copy(image, "-rom1fs-")
	binary.BigEndian.PutUint32(image[8:], told)
	copy(image[16:], "empty")
	// The root names itself as its first file, behind which is none.
	binary.BigEndian.PutUint32(image[root:], folder)
	binary.BigEndian.PutUint32(image[root+4:], root)
	copy(image[root+16:], ".")
	balance(image[root:root+32], 12)
	balance(image[:summed], 12)
	return image
}

// balance writes a number at a place of some bytes, so that they add up to nothing as numbers of 32 bits.
func balance(b []byte, at int) {
	var sum uint32
	for i := 0; i < len(b); i += 4 {
		sum += binary.BigEndian.Uint32(b[i:])
	}
	binary.BigEndian.PutUint32(b[at:], -sum)
}
