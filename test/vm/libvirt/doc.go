// Package libvirt holds the XML that Divvy prints for libvirt against libvirt's own schema, which hack/libvirt.sh unpacks. It
// starts no libvirt.
package libvirt
