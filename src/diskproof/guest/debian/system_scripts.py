"""What the base image's Debian runs for a study of boots, as shell scripts (dash, busybox).

The host says on the kernel's command line what a boot is to do; the answer is lines ``key=value``
on the agent's port (``one_boot.parse_report``). A line from the host lets the guest switch
itself off.
"""

from diskproof.qemu.machine import AGENT_PORT

LABEL = "diskproof-root"
COUNTER = "/var/lib/diskproof/boots"
PAYLOAD = "/srv/payload.tar"
SCRIPT = "/usr/local/sbin/diskproof-boot"

FSTAB = f"LABEL={LABEL} / ext4 errors=remount-ro 0 1\n"
SYSINIT_SCRIPT = "/usr/local/sbin/diskproof-sysinit"
HALT_SCRIPT = "/usr/local/sbin/diskproof-halt"

# Debian's init with a short table. Its own boot scripts start some 600 programs for what a machine
# without swap, shares, screen and lasting clock does not have: 12 s of emulation, all of it CPU.
INITTAB = f"""\
id:2:initdefault:
si::sysinit:{SYSINIT_SCRIPT}
l2:2:wait:{SCRIPT}
l0:0:wait:{HALT_SCRIPT}
"""
# As /etc/init.d/checkroot.sh and umountroot do it.
SYSINIT = """\
#!/bin/sh
fsck -a -T / || [ $? -le 1 ] || echo "diskproof-early: fatal: fsck found errors it cannot mend"
mount -o remount,rw /
"""
HALT = """\
#!/bin/sh
mount -n -o remount,ro /
exec halt -d -f -i -p
"""

# In the initramfs: modules of the bus, the root read-only as Debian mounts it, then its own init.
EARLY_INIT = """\
#!/bin/busybox sh
fail() { echo "diskproof-early: fatal: $*"; /bin/busybox poweroff -f; }
export PATH=/bin
/bin/busybox mkdir -p /proc /sys /dev /root
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
read -r line < /proc/cmdline
for word in $line; do
    case $word in
        root=*) root=${word#root=} ;;
        diskproof.drivers=*) drivers=${word#diskproof.drivers=} ;;
    esac
done
IFS=,
for module in $drivers; do
    /bin/busybox insmod "/modules/$module.ko" || fail "insmod $module"
done
tries=0
until [ -b "$root" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 3000 ] || fail "there is no $root"
    /bin/busybox usleep 10000
done
/bin/busybox mount -t ext4 -o ro "$root" /root || fail "cannot mount $root"
/bin/busybox mount -t tmpfs -o mode=755 tmpfs /root/run
/bin/busybox mount --move /dev /root/dev
/bin/busybox mount --move /proc /root/proc
/bin/busybox mount --move /sys /root/sys
exec /bin/busybox switch_root /root /sbin/init
"""

# The workload: sizes and counts come from the command line, times from /proc/uptime (10 ms).
BOOT = f"""\
#!/bin/sh
LC_ALL=C; export LC_ALL
read -r started _ < /proc/uptime
for word in $(cat /proc/cmdline); do
    case $word in
        root=*) disk=${{word#root=/dev/}} ;;
        diskproof.boot=*) kind=${{word#diskproof.boot=}} ;;
        diskproof.block=*) block=${{word#diskproof.block=}} ;;
    esac
done
for name in /sys/class/virtio-ports/*/name; do
    read -r value < "$name"
    folder=${{name%/name}}
    [ "$value" = {AGENT_PORT} ] && exec 3<> "/dev/${{folder##*/}}"
done
say() {{ echo "$1=$2" >&3; }}
must() {{ "$@" || {{ say failed "$*"; finish; }}; }}
finish() {{
    say done "$kind"
    read -r _ <&3 # until the host has seen what it wants to see of the running machine
    exec telinit 0
}}
timed() {{
    step=$1; shift
    read -r began _ < /proc/uptime
    must "$@"
    read -r now _ < /proc/uptime
    say "step.$step" "$began $now"
}}
count() {{
    boots=0
    [ -f {COUNTER} ] && read -r boots < {COUNTER}
    boots=$((boots + 1))
    echo "$boots" > {COUNTER}.new && sync {COUNTER}.new && mv {COUNTER}.new {COUNTER}
    say boots "$boots"
}}
walk() {{
    say walked "$(find / -xdev -type f -printf '%s\\n' |
        awk '{{ n++; s += $1 }} END {{ print n, s }}')"
}}
list() {{ say listed "$(tar -tf {PAYLOAD} | wc -l)"; }}
zeroes() {{
    dd if=/dev/zero of=/srv/zeroes bs="$block" count=2 iflag=fullblock 2> /dev/null &&
        sync && say zeroed "$(stat -c %s /srv/zeroes)" && rm /srv/zeroes
}}
unpack() {{
    mkdir /srv/unpacked && say unpacked "$(tar -xvf {PAYLOAD} -C /srv/unpacked | wc -l)" && sync
}}
remove() {{ rm -r /srv/unpacked && sync; }}
say kernel "$(uname -r)"
say started "$started"
say write_cache "$(cat "/sys/block/$disk/queue/write_cache")"
say size "$(cat "/sys/block/$disk/size")"
must count
case $kind in
    read) for n in 1 2; do timed "walk$n" walk; timed "list$n" list; done ;;
    write)
        for n in 1 2 3; do timed "zeroes$n" zeroes; done
        timed unpack unpack
        timed remove remove ;;
esac
say stat "$(cat "/sys/block/$disk/stat")"
finish
"""
