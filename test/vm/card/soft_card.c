// SPDX-License-Identifier: GPL-2.0
/*
 * Lets soft-RoCE work in every network namespace, and for macvlan devices on its card, as adapters of hardware do. In
 * Linux 6.12 it looks for routes in the first namespace, receives in that one alone, and knows no device but its own.
 */
#include <linux/if_macvlan.h>
#include <linux/inetdevice.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>

/* The port of RoCE version 2. */
#define PORT 4791

/* What soft-RoCE does with a packet that arrives in the first namespace. */
static udp_tunnel_encap_rcv_t receive;

static unsigned int sockets;

static int open_socket(struct net *net) {
    struct socket **held = net_generic(net, sockets);
    struct udp_port_cfg address = {.family = AF_INET, .local_udp_port = htons(PORT)};
    struct udp_tunnel_sock_cfg tunnel = {.encap_type = 1, .encap_rcv = receive};
    int result;

    if (net_eq(net, &init_net)) {
        return 0;
    }
    result = udp_sock_create(net, &address, held);
    if (!result) {
        setup_udp_tunnel_sock(net, *held, &tunnel);
    }
    return result;
}

static void close_socket(struct net *net) {
    struct socket **held = net_generic(net, sockets);

    if (*held) {
        udp_tunnel_sock_release(*held);
    }
}

static struct pernet_operations namespaces = {
    .init = open_socket,
    .exit = close_socket,
    .id = &sockets,
    .size = sizeof(struct socket *),
};

static bool has_address(struct net_device *device, __be32 address) {
    struct in_device *in_device = __in_dev_get_rcu(device);
    const struct in_ifaddr *each;

    if (!in_device) {
        return false;
    }
    in_dev_for_each_ifa_rcu(each, in_device) {
        if (each->ifa_local == address) {
            return true;
        }
    }
    return false;
}

/* Soft-RoCE names device and source: the namespace is the one that has both. */
static int find_route(struct kprobe *probe, struct pt_regs *regs) {
    const struct flowi4 *flow = (const struct flowi4 *)regs->si;
    struct net *net;

    if ((struct net *)regs->di != &init_net || !flow->flowi4_oif || !flow->saddr ||
        flow->flowi4_proto != IPPROTO_UDP) {
        return 0;
    }
    rcu_read_lock();
    for_each_net_rcu(net) {
        struct net_device *device = dev_get_by_index_rcu(net, flow->flowi4_oif);
        if (device && has_address(device, flow->saddr)) {
            regs->di = (unsigned long)net;
            break;
        }
    }
    rcu_read_unlock();
    return 0;
}

/* A packet for a macvlan device is for the adapter of the card below. Outside of receiving, a device that ends is meant. */
static int find_adapter(struct kprobe *probe, struct pt_regs *regs) {
    const struct net_device *device = (const struct net_device *)regs->di;

    if (in_serving_softirq() && netif_is_macvlan(device)) {
        regs->di = (unsigned long)macvlan_dev_real_dev(device);
    }
    return 0;
}

static struct kprobe route = {.symbol_name = "ip_route_output_flow", .pre_handler = find_route};
static struct kprobe adapter = {
    .symbol_name = "ib_device_get_by_netdev",
    .pre_handler = find_adapter,
};

static int __init card_start(void) {
    const __be32 here = htonl(INADDR_LOOPBACK);
    struct sock *first =
        udp4_lib_lookup(&init_net, here, htons(PORT), here, htons(PORT), LOOPBACK_IFINDEX);
    struct kprobe *probes[] = {&route, &adapter};
    int result;

    if (!first) {
        return -ENODEV;
    }
    receive = udp_sk(first)->encap_rcv;
    sock_put(first);
    result = register_kprobes(probes, ARRAY_SIZE(probes));
    if (result) {
        return result;
    }
    result = register_pernet_subsys(&namespaces);
    if (result) {
        unregister_kprobes(probes, ARRAY_SIZE(probes));
    }
    return result;
}

static void __exit card_stop(void) {
    struct kprobe *probes[] = {&route, &adapter};

    unregister_pernet_subsys(&namespaces);
    unregister_kprobes(probes, ARRAY_SIZE(probes));
}

module_init(card_start);
module_exit(card_stop);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("lets soft-RoCE work in network namespaces, for tests");
