/* A tree of ranges in the order of their addresses, balanced by weights that are drawn. */
#include "remote/client/ranges.h"

struct range_node *range_before(struct range_node *root, uint64_t address) {
    struct range_node *found = NULL;

    while (root) {
        if (root->range.start <= address) {
            found = root;
            root = root->right;
        } else {
            root = root->left;
        }
    }
    return found;
}

struct range_node *range_after(struct range_node *root, uint64_t address) {
    struct range_node *found = NULL;

    while (root) {
        if (root->range.start > address) {
            found = root;
            root = root->left;
        } else {
            root = root->right;
        }
    }
    return found;
}

/* Parts a tree into what starts before an address and the rest. */
static void split(struct range_node *root, uint64_t start, struct range_node **below,
                  struct range_node **rest) {
    while (root) {
        if (root->range.start < start) {
            *below = root;
            below = &root->right;
            root = root->right;
        } else {
            *rest = root;
            rest = &root->left;
            root = root->left;
        }
    }
    *below = *rest = NULL;
}

/* Joins two trees, the first of which lies before the second. */
static struct range_node *join(struct range_node *below, struct range_node *rest) {
    struct range_node *root = NULL, **at = &root;

    while (below && rest) {
        if (below->weight >= rest->weight) {
            *at = below;
            at = &below->right;
            below = below->right;
        } else {
            *at = rest;
            at = &rest->left;
            rest = rest->left;
        }
    }
    *at = below ? below : rest;
    return root;
}

void range_insert(struct range_node **root, struct range_node *node) {
    while (*root && (*root)->weight >= node->weight) {
        root = node->range.start < (*root)->range.start ? &(*root)->left : &(*root)->right;
    }
    split(*root, node->range.start, &node->left, &node->right);
    *root = node;
}

struct range_node *range_take(struct range_node **root, uint64_t start) {
    while ((*root)->range.start != start) {
        root = start < (*root)->range.start ? &(*root)->left : &(*root)->right;
    }
    struct range_node *node = *root;
    *root = join(node->left, node->right);
    return node;
}
